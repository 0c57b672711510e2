//! `posthaste completions` and `posthaste man`: what packages install beside the program.

use std::{io, path::PathBuf};

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::{
    Cli,
    failure::{Failure, Status},
    output,
};

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell that is to complete commands and options
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write the page of each command into this folder, instead of the first page to standard
    /// output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Completions {
    pub(crate) fn run(&self) -> Result<Status, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "posthaste", &mut script);
        output::print(&String::from_utf8_lossy(&script))?;
        Ok(Status::Done)
    }
}

impl Man {
    pub(crate) fn run(&self) -> Result<Status, Failure> {
        let Some(dir) = &self.dir else {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            output::print(&String::from_utf8_lossy(&page))?;
            return Ok(Status::Done);
        };
        let written = std::fs::create_dir_all(dir)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
        written.map_err(|error: io::Error| {
            Failure::failed(format!(
                "cannot write manual pages into {}: {error}\nfix: give a folder that you may write",
                dir.display()
            ))
        })?;
        Ok(Status::Done)
    }
}
