//! What stands behind the options in long help: examples, and what is good to know.

pub(super) const EXIT_STATUS: &str = "\
Exit status:
  0    done
  1    failed
  2    wrong arguments
  3    this machine cannot do it (see `wayfarer doctor`)
  4    the image is damaged or does not fit this machine
  5    the other side of a remote job is lost, or cannot be reached
  85   `run`, `restart` with `--every` and the like: the job has left; started again, it goes on
  126  `run`: the command was found but cannot be executed
  127  `run`: the command was not found
`run`, `restart` and an executed image end as their job does: with its exit
status, or by the signal that ended it (128 + N in a shell).

Environment:
  XDG_STATE_HOME  jobs live in $XDG_STATE_HOME/wayfarer (default ~/.local/state/wayfarer)
  NO_COLOR        no colours, whatever the terminal can do
  WAYFARER_CC, WAYFARER_CXX, WAYFARER_FC, WAYFARER_IMAGE_FILE and what commands of
  --notify and backfill jobs are given: docs/STARTER.md, docs/POLICY.md";

pub(super) const RUN_EXAMPLES: &str = "\
Examples:
  wayfarer run -- ./simulate --steps 100000 input.dat
  wayfarer run --name night -- python3 train.py > train.log
  wayfarer checkpoint night
  wayfarer run --journal --name solver -- ./solve in.dat
                          and `wayfarer restart solver` undoes what came after its image
  wayfarer run --name sim --resume --every 30m --vacate-within 25s -- ./simulate
                          looks after itself (docs/STARTER.md): the same command goes on

The job lives in a user, pid and mount namespace of its own where the machine
lets an ordinary user make one: its process ids can then be the same on every
machine. What this costs: supplementary groups and files of other owners show
as 65534, and setuid programs (sudo, ping) gain nothing. `--pids host` is for
jobs that need those.

A job ends with its first process, and so do the processes that it left in the
background: `sh -c 'work & exit'` does not outlive the shell; `work & wait` does.";

pub(super) const CHECKPOINT_EXAMPLES: &str = "\
Examples:
  wayfarer checkpoint night                  the image goes to the job's own directory
  wayfarer checkpoint night -o night.img     to a file, which must not exist yet
  wayfarer checkpoint night --then kill      and the job is ended: it goes on elsewhere
  wayfarer checkpoint 4711 -o it.img         a process that wayfarer did not start

The image appears under its name only when it is whole. What cannot be carried
is refused before anything is touched, and the job runs on.";

pub(super) const SHADOW_EXAMPLES: &str = "\
Examples:
  wayfarer shadow --listen unix:/tmp/home &
  wayfarer run --shadow unix:/tmp/home -- sort data.txt

  wayfarer shadow --listen unix:/tmp/home --allow /home/me/job --allow /usr:ro

  wayfarer shadow --listen tls:0.0.0.0:4711 --identity-file night.id &
  scp night.id there:; ssh there wayfarer run --shadow tls:here:4711 --identity-file night.id -- ./simulate

Whoever owns the shadow owns the jobs that it serves: the socket is for processes
of the same user, who also need the token that is written beside it. Who has the
identity file has the files that are allowed: it is written anew by each shadow,
with mode 600, and removed when the shadow ends. `wayfarer submit` does all this by ssh.";

pub(super) const SUBMIT_EXAMPLES: &str = "\
Examples:
  wayfarer submit --on big.example -- ./simulate --steps 100000 input.dat
  tar cf - src | wayfarer submit --on me@big.example --ssh 'ssh -p 2222' -- sh -c 'tar xf - && make'

The program, its libraries and its files are those of this machine, whatever is
installed there; processors, memory and network are the other's. It needs ssh, and
there nothing but /proc: wayfarer itself is copied when it is not there. The job
has no terminal. Ctrl-C is passed on to it. A connection that breaks is made anew as
long as --lease says; then the job is ended there, and submit ends with status 5.

With a life of its own, the job outlives the other machine:
  wayfarer submit --on a --on b --every 30m --name run -- ./simulate input.dat > out
  wayfarer migrate run --to c
Its images come here. If its machine is lost, it goes on from the last one, with its
files as they were then, there or on the next --on; without an image, it begins
again. Its starter is here: suspend, checkpoint, vacate, status, log and tail are
asked here. Output that is no file is shown at the end (tail -f shows it before).";

pub(super) const RESTART_EXAMPLES: &str = "\
Examples:
  wayfarer restart night.img     go on from this image
  wayfarer restart night         go on from the latest image of the job `night`
  ./night.img                    the same without wayfarer: the image is a program

An image from a stranger is a program from a stranger.";
