//! Sets the soname of the shared library: it changes when programs that are linked with it must be rebuilt.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libminos.so.{}", env!("CARGO_PKG_VERSION_MAJOR"));
    println!("cargo:rerun-if-changed=build.rs");
}
