//! Many tasks share a client: `cargo run -p minos-client --example tasks [ADDRESS]`, with
//! `minos serve --native 127.0.0.1:11311` running.

use minos_client::{Config, Error, tokio::Client};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:11311".to_owned());
    let client = Client::connect(&address, Config::new()).await?;
    let tasks: Vec<_> = (0..100)
        .map(|index| {
            let client = client.clone();
            tokio::spawn(async move {
                let key = format!("task{index}");
                client.put(&key, vec![b'x'; index * 100]).await?;
                Ok::<_, Error>(client.get(&key).await?.map_or(0, |value| value.bytes.len()))
            })
        })
        .collect();
    let mut bytes = 0;
    for task in tasks {
        bytes += task.await.map_err(|_| Error::Closed)??;
    }
    println!("100 tasks read {bytes} bytes");
    // Simultaneous requests share datagrams.
    let found = client.get_many((0..100).map(|index| format!("task{index}"))).await;
    println!("{} of 100 are there", found.iter().filter(|result| matches!(result, Ok(Some(_)))).count());
    Ok(())
}
