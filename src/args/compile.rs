//! Arguments of `cc`, `c++` and `fc`.

use clap::Args;
use std::ffi::OsString;

const ENVIRONMENT: &str = "\
The compiler is cc, c++ or gfortran, or what WAYFARER_CC, WAYFARER_CXX or
WAYFARER_FC says, which may have arguments. All arguments are its own, --help
and --version too.

Examples:
  wayfarer cc -O2 -o simulate simulate.c
  make CC='wayfarer cc' FC='wayfarer fc'
  ./simulate -_condor_ckpt image ...      run it as a job with its image there
  ./simulate -_condor_restart image";

/// Compile and link a program so that it can ask for checkpoints itself, as condor_compile did
///
/// No program needs this to be checkpointed. Linked so, it has the functions of wayfarer.h (ckpt(), ckpt_and_exit(), restart() ...),
/// which it finds by #include <wayfarer.h>, and understands -_condor_ckpt and -_condor_restart.
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_long_help = ENVIRONMENT)]
pub(crate) struct Compile {
    /// What the compiler is given
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "ARGUMENTS"
    )]
    pub(crate) words: Vec<OsString>,
}
