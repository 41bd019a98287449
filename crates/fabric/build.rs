//! Builds the shim over UCX, if the feature `ucx` asks for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "ucx")]
    ucx::build();
}

#[cfg(feature = "ucx")]
mod ucx {
    use std::process::Command;

    /// The interface of which the shim makes use.
    const VERSION: &str = "ucx >= 1.13";
    const SHIM: &str = "shim/ucx.c";

    pub(super) fn build() {
        println!("cargo:rerun-if-changed={SHIM}");
        let mut shim = cc::Build::new();
        shim.file(SHIM).warnings(true).warnings_into_errors(true);
        shim.flags(pkg_config(&["--cflags"]).split_whitespace()).compile("minos_ucx_shim");
        for flag in pkg_config(&["--libs"]).split_whitespace() {
            if let Some(folder) = flag.strip_prefix("-L") {
                println!("cargo:rustc-link-search={folder}");
            } else if let Some(name) = flag.strip_prefix("-l") {
                println!("cargo:rustc-link-lib={name}");
            }
        }
    }

    fn pkg_config(arguments: &[&str]) -> String {
        let output = Command::new("pkg-config").args(arguments).arg(VERSION).output();
        let output = output.unwrap_or_else(|error| {
            panic!("the feature `ucx` needs pkg-config, which cannot be run: {error}; on Debian: apt-get install pkg-config libucx-dev")
        });
        assert!(
            output.status.success(),
            "the feature `ucx` needs {VERSION}, on Debian: apt-get install libucx-dev; pkg-config says: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
