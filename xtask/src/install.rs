//! Installation of the client for C: header, libraries, and a file for pkg-config.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::Context;
use clap::Args;

use crate::command::{cargo, root, run, target};

const VERSION: &str = env!("CARGO_PKG_VERSION");
const VERSION_MAJOR: &str = env!("CARGO_PKG_VERSION_MAJOR");

/// The destination of the client for C.
#[derive(Args)]
pub(crate) struct InstallOptions {
    /// Folder that gets include/minos.h, the libraries in lib, and lib/pkgconfig/minos.pc
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// Put another folder in front of all paths, which the installed files do not name: for packages
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
    /// Take libminos.so and libminos.a from this folder, instead of building them
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,
}

/// Builds the libraries, unless a folder with them is given, and installs them.
pub(crate) fn install(options: &InstallOptions) -> anyhow::Result<()> {
    let libraries = match &options.libraries {
        Some(libraries) => libraries.clone(),
        None => {
            run(&mut cargo(&["build", "--profile", "client", "-p", "minos-client-c"]))?;
            target().join("client")
        }
    };
    let prefix = std::path::absolute(&options.prefix)?;
    let place = match &options.destdir {
        Some(folder) => folder.join(prefix.strip_prefix("/")?),
        None => prefix.clone(),
    };
    lay_out(&libraries, &prefix, &place)?;
    println!("installed libminos {VERSION} in {}", place.display());
    Ok(())
}

/// Copies the files below `place`; they refer to `prefix`.
fn lay_out(libraries: &Path, prefix: &Path, place: &Path) -> anyhow::Result<()> {
    let source = root().join("clients/c");
    let (include, lib) = (place.join("include"), place.join("lib"));
    let pkgconfig = lib.join("pkgconfig");
    for folder in [&include, &pkgconfig] {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    put(&source.join("include/minos.h"), &include.join("minos.h"), 0o644)?;
    put(&libraries.join("libminos.a"), &lib.join("libminos.a"), 0o644)?;
    let shared = format!("libminos.so.{VERSION}");
    put(&libraries.join("libminos.so"), &lib.join(&shared), 0o755)?;
    link(&shared, &lib.join(format!("libminos.so.{VERSION_MAJOR}")))?;
    link(&shared, &lib.join("libminos.so"))?;
    let template = fs::read_to_string(source.join("minos.pc.in"))?;
    let text = template.replace("@PREFIX@", &prefix.to_string_lossy()).replace("@VERSION@", VERSION);
    let path = pkgconfig.join("minos.pc");
    fs::write(&path, text).with_context(|| path.display().to_string())
}

/// Copies a file to a new inode. Programs that have mapped an old library keep it.
fn put(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    remove(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

fn link(name: &str, to: &Path) -> anyhow::Result<()> {
    remove(to)?;
    symlink(name, to).with_context(|| to.display().to_string())
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(path.display().to_string())
        }
        _ => Ok(()),
    }
}
