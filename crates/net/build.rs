//! Builds the shim over DPDK, if the feature `dpdk` asks for it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::Command;

    /// The interface of which the shim makes use.
    const VERSION: &str = "libdpdk >= 22.11";
    const SHIM: &str = "shim/dpdk.c";
    /// The libraries of which the shim makes use. Drivers are loaded as plugins.
    const LIBRARIES: [&str; 4] = ["rte_eal", "rte_ethdev", "rte_mbuf", "rte_mempool"];

    pub(super) fn build() {
        println!("cargo:rerun-if-changed={SHIM}");
        let mut shim = cc::Build::new();
        shim.file(SHIM).warnings(true).warnings_into_errors(true).opt_level(3);
        // Its headers have warnings of their own.
        let flags = pkg_config(&["--cflags"]).replace("-I", "-isystem ");
        shim.flags(flags.split_whitespace()).compile("minos_dpdk_shim");
        for flag in pkg_config(&["--libs-only-L"]).split_whitespace() {
            println!("cargo:rustc-link-search={}", flag.trim_start_matches("-L"));
        }
        for library in LIBRARIES {
            println!("cargo:rustc-link-lib={library}");
        }
    }

    fn pkg_config(arguments: &[&str]) -> String {
        let output = Command::new("pkg-config").args(arguments).arg(VERSION).output();
        let output = output.unwrap_or_else(|error| {
            panic!("the feature `dpdk` needs pkg-config, which cannot be run: {error}; on Debian: apt-get install pkg-config dpdk-dev")
        });
        assert!(
            output.status.success(),
            "the feature `dpdk` needs {VERSION}, on Debian: apt-get install dpdk-dev; pkg-config says: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
