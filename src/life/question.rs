//! What a starter can be asked for, as it is said ([`super::control`]).

use super::Starter;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use starter::events::ReasonCode;
use starter::life::{Answer, Command, Event, Hold, Who};
use std::num::NonZeroU64;
use std::time::Duration;

/// What somebody can be asked.
pub(crate) trait Question: Clone + Serialize + DeserializeOwned {
    /// Who is asked.
    const WHO: &'static str;
}

impl Question for Ask {
    const WHO: &'static str = "starter";
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case")]
pub(crate) enum Ask {
    Suspend {},
    Continue {},
    Checkpoint {},
    /// The image that is being made is given up.
    Abort {},
    /// Images go no faster; none: as fast as they can.
    ImageRate {
        bytes_per_second: Option<NonZeroU64>,
    },
    Migrate {
        to: String,
    },
    Vacate {
        within_ms: Option<u64>,
        /// It is tried again if no image can be made.
        #[serde(default)]
        insists: bool,
    },
    VacateLatest {
        /// Though there is no image.
        #[serde(default)]
        at_any_price: bool,
    },
    Hold {
        reason: String,
        #[serde(default = "by_user")]
        code: i32,
        #[serde(default)]
        subcode: i32,
        /// It is tried again if no image can be made.
        #[serde(default)]
        insists: bool,
    },
    Kill {},
    /// A signal for the job's first process.
    Signal {
        number: i32,
    },
}

/// What that means.
#[derive(Debug, PartialEq)]
pub(super) enum Wanted {
    /// For the state machine.
    Command(Command),
    /// For whoever carries images.
    ImageRate(Option<NonZeroU64>),
    /// For the job's first process.
    Signal(i32),
}

fn by_user() -> i32 {
    Hold::BY_USER
}

impl Ask {
    /// It goes on only when it is released.
    pub(crate) fn hold(hold: Hold, insists: bool) -> Self {
        Ask::Hold {
            reason: hold.reason,
            code: hold.code.code,
            subcode: hold.code.subcode,
            insists,
        }
    }

    pub(super) fn meaning(self) -> Wanted {
        Wanted::Command(match self {
            Ask::ImageRate { bytes_per_second } => return Wanted::ImageRate(bytes_per_second),
            Ask::Signal { number } => return Wanted::Signal(number),
            Ask::Abort {} => Command::Abort,
            Ask::Suspend {} => Command::Suspend,
            Ask::Continue {} => Command::Continue,
            Ask::Checkpoint {} => Command::Checkpoint,
            Ask::Migrate { to } => Command::Migrate { to },
            Ask::Vacate { within_ms, insists } => Command::Vacate {
                within: within_ms.map(Duration::from_millis),
                insists,
            },
            Ask::VacateLatest { at_any_price } => Command::VacateLatest { at_any_price },
            Ask::Hold {
                reason,
                code,
                subcode,
                insists,
            } => {
                let code = ReasonCode { code, subcode };
                let hold = Hold { reason, code };
                Command::Hold { hold, insists }
            }
            Ask::Kill {} => Command::Kill,
        })
    }
}

impl Starter<'_> {
    /// What only jobs on other machines can do is refused here.
    pub(super) fn is_asked(&mut self, who: Who, ask: Ask) {
        let answer = match ask.meaning() {
            Wanted::Command(Command::Migrate { to }) => {
                if self.away().is_some() {
                    return self.moves(who, to);
                }
                let reason =
                    "it runs where its starter is; `vacate` it, and start it again elsewhere";
                Answer::Refused(reason.to_owned())
            }
            Wanted::Command(command) => {
                return self.events.push_back(Event::Asked(who, command));
            }
            Wanted::Signal(_) if !self.copy_runs => {
                Answer::Refused("it does not run now".to_owned())
            }
            Wanted::Signal(_) if self.is_cut => {
                Answer::Refused("the line to its machine is cut".to_owned())
            }
            Wanted::Signal(number) => {
                self.with_copy(|copy| copy.signal(number));
                Answer::Done
            }
            Wanted::ImageRate(rate) => {
                tracing::info!(rate, "images go at another rate");
                self.rate = rate;
                self.making.iter().for_each(|making| making.goes_at(rate));
                Answer::Done
            }
        };
        let state = self.life.state().name();
        self.control.answer(who, &answer, state);
    }
}
