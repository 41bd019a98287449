//! `minos completions` and `minos man`: what a shell and a reader of manuals need, made from the options themselves.

use std::{fs, io, path::PathBuf};

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;

/// Print the completions for a shell.
///
/// For bash: minos completions bash > /etc/bash_completion.d/minos
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

impl CompletionsArgs {
    pub(crate) fn run(&self, mut command: Command) -> anyhow::Result<()> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "minos", &mut script);
        Ok(crate::client::show(|out| out.write_all(&script))?)
    }
}

/// Write the manual pages, one for each command.
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The folder for them, such as /usr/local/share/man/man1
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

impl ManArgs {
    pub(crate) fn run(&self, command: Command) -> anyhow::Result<()> {
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            clap_mangen::generate_to(command, &self.folder)
        };
        write().with_context(|| self.folder.display().to_string())
    }
}
