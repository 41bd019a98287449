//! All that another machine needs for an evaluation: static programs, and the rivals with their libraries.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use anyhow::{Context as _, ensure};

use crate::command::{cargo, root, run, target};

const TARGET: &str = "x86_64-unknown-linux-gnu";
const RIVALS: [&str; 2] = ["memcached", "redis-server"];
/// Libraries that every machine has, of an age that fits its dynamic linker.
const LIBC: [&str; 5] = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"];

/// Fills `folder`: `bin` with programs, `lib` with the rivals' libraries.
pub(super) fn make(folder: &Path) -> anyhow::Result<()> {
    let (bin, lib) = (folder.join("bin"), folder.join("lib"));
    fs::create_dir_all(&bin)?;
    fs::create_dir_all(&lib)?;
    let mut build = cargo(&["build", "--release", "--target", TARGET, "-p", "minos", "-p", "xtask"]);
    build.env("RUSTFLAGS", "-C target-feature=+crt-static");
    build.env("CARGO_TARGET_DIR", target().join("static"));
    run(build.env("CARGO_PROFILE_RELEASE_STRIP", "debuginfo"))?;
    for program in ["minos", "xtask"] {
        let built = target().join("static").join(TARGET).join("release").join(program);
        fs::copy(built, bin.join(program))?;
    }
    for rival in RIVALS {
        take(rival, &bin, &lib)?;
    }
    println!(
        "{} has all that is needed. In a copy of {}'s folder xtask on the other machine:\n\
         PATH={0}/bin:$PATH {0}/bin/xtask evaluate --program {0}/bin/minos",
        folder.display(),
        root().display()
    );
    Ok(())
}

/// Copies a program and its libraries, and starts it by a script that finds them.
fn take(program: &str, bin: &Path, lib: &Path) -> anyhow::Result<()> {
    let path = text(Command::new("which").arg(program))?;
    let path = fs::canonicalize(path.trim()).context(program.to_owned())?;
    fs::copy(&path, lib.join(program))?;
    for line in text(Command::new("ldd").arg(&path))?.lines() {
        // As in: libevent-2.1.so.7 => /lib/x86_64-linux-gnu/libevent-2.1.so.7 (0x00007f5c8a2d4000)
        let Some((name, found)) = line.trim().split_once(" => ") else { continue };
        if !LIBC.contains(&name) {
            fs::copy(found.split(' ').next().unwrap_or_default(), lib.join(name)).context(name.to_owned())?;
        }
    }
    let script = bin.join(program);
    let text = format!(
        "#!/bin/sh\nlib=$(dirname \"$0\")/../lib\nLD_LIBRARY_PATH=\"$lib\" exec \"$lib/{program}\" \"$@\"\n"
    );
    fs::write(&script, text)?;
    Ok(fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?)
}

fn text(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
