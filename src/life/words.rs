//! What a starter says to whoever keeps a copy on another machine, and hears of one that does not begin, besides the loader's words.

/// What is said in place of the loader's words, before it is there: why not.
pub(crate) const FAILED: u8 = b'f';
/// Let it stand still.
pub(crate) const STOP: u8 = b'S';
/// Let it go on.
pub(crate) const GO: u8 = b'G';
/// Kill it.
pub(crate) const KILL: u8 = b'K';
/// Send its first process a signal, whose number follows in a byte.
pub(crate) const SIGNAL: u8 = b'Z';
/// Said to the starter of a job that runs: the line to its machine is cut.
pub(crate) const CUT: u8 = b'C';
/// There is another.
pub(crate) const JOINED: u8 = b'J';
/// What can be there before the job leaves is there.
pub(crate) const SEATED: u8 = b'p';
/// The image that it goes on from follows: the length of its path in four bytes, little-endian, and the path.
pub(crate) const IMAGE: u8 = b'I';
/// The same of one that is to be there, too, while the job still runs elsewhere.
pub(crate) const MORE: u8 = b'M';
/// The job wants something: its number and kind follow, as `1,2;` ([`crate::away::wants_heard`]).
pub(crate) const WANTS: u8 = b'W';
/// It is done, or not ([`crate::away::answer_said`]).
pub(crate) const ANSWER: u8 = b'A';
/// What the copy has done so far follows, as `1,2,3,4,0;` ([`crate::away::Update`]).
pub(crate) const UPDATE: u8 = b'D';
/// The processor time that it has used there follows, in two numbers of eight bytes: microseconds of programs, and of the kernel for them.
pub(crate) const USED: u8 = b'U';
