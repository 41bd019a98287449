//! Gives the shared library its name for programs that are linked with it: it changes when they must be built anew.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libminos.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
    println!("cargo:rerun-if-changed=build.rs");
}
