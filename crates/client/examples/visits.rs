//! Counts visits and shows a page that is stored beside the counter:
//! `cargo run -p minos-client --example visits [ADDRESS]`, with `minos serve --native 127.0.0.1:11311` running.

use std::time::Duration;

use minos_client::{Config, Error, StoreOptions, blocking::Client};

fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:11311".to_owned());
    let mut client = Client::connect(&address, Config::new().timeout(Duration::from_secs(1)))?;
    // Executed exactly once, however often it has to be sent.
    let visits = client.incr_or_create("visits", 1, 1, StoreOptions::new())?;
    let page = match client.get("page")? {
        Some(value) => value.bytes,
        None => {
            let page = format!("made at visit {visits}").into_bytes();
            client.put_with("page", page.clone(), StoreOptions::new().ttl(Duration::from_secs(60)))?;
            page
        }
    };
    println!("visit {visits}: {}", String::from_utf8_lossy(&page));
    println!("the server answers within {:?}", client.ping()?);
    Ok(())
}
