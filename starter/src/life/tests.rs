//! The machine against stories that are told, and against a world that does anything.

mod aborting;
mod leaving;
mod lines;
mod moving;
mod passing;
mod restarting;

use super::*;
use proptest::prelude::*;

const POLICY: Policy = Policy {
    every: Some(Duration::from_secs(100)),
    vacate_within: None,
    killing_timeout: Duration::from_secs(10),
    restarts_per_image: 3,
};

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A job that runs since the first second.
fn running(policy: Policy) -> Life {
    let (mut life, first) = Life::begin(policy, First::Start);
    assert_eq!(
        (first, life.state()),
        (vec![Action::Start], State::Starting)
    );
    assert_eq!(life.step(Event::Runs, at(1)), []);
    assert_eq!(life.state(), State::Running);
    life
}

/// The same, with an image that was due.
fn with_image() -> Life {
    let mut life = running(POLICY);
    let actions = life.step(Event::Time, at(101));
    assert_eq!(actions, [Action::Checkpoint { leaves: false }]);
    assert_eq!(life.step(Event::Checkpointed(Ok(())), at(102)), []);
    life
}

fn vacate(within: Option<u64>, insists: bool) -> Command {
    Command::Vacate {
        within: within.map(at),
        insists,
    }
}

fn hold(reason: &str) -> Command {
    Command::Hold {
        hold: Hold::new(reason.to_owned(), Hold::BY_USER),
        insists: false,
    }
}

fn asked(who: u64, command: Command) -> Event {
    Event::Asked(Who(who), command)
}

fn refused(who: u64, reason: &str) -> Action {
    Action::Answer(Who(who), Answer::Refused(reason.to_owned()))
}

fn done(who: u64) -> Action {
    Action::Answer(Who(who), Answer::Done)
}

const KILLED: Event = Event::Ended(End::Signalled(9));

#[test]
fn names_are_those_of_the_states() {
    for state in [State::Starting, State::Suspended, State::Idle, State::Held] {
        assert_eq!(State::from_name(state.name()), Some(state));
    }
    assert_eq!(State::from_name("Asleep"), None);
}

#[test]
fn a_checkpoint_is_due_after_so_much_work() {
    let mut life = running(POLICY);
    assert_eq!(life.wake_at(at(11)), Some(at(101)));
    assert_eq!(life.step(Event::Time, at(100)), []);
    // What it stands still is no work.
    assert_eq!(life.step(Event::Stopped, at(100)), []);
    assert_eq!(
        (life.state(), life.wake_at(at(150))),
        (State::Suspended, None)
    );
    assert_eq!(life.step(Event::Time, at(5000)), []);
    assert_eq!(life.step(Event::Continued, at(5000)), []);
    assert_eq!(life.wake_at(at(5000)), Some(at(5001)));
    let due = life.step(Event::Time, at(5001));
    assert_eq!(due, [Action::Checkpoint { leaves: false }]);
    assert_eq!(life.state(), State::Checkpointing);
    assert_eq!(life.step(Event::Checkpointed(Ok(())), at(5002)), []);
    assert_eq!(life.wake_at(at(5002)), Some(at(5102)));
}

#[test]
fn what_is_refused_is_tried_again_less_and_less_often() {
    let mut life = running(POLICY);
    let mut now = at(101);
    let mut pauses = vec![];
    for _ in 0..9 {
        let begun = life.step(Event::Time, now);
        assert_eq!(begun, [Action::Checkpoint { leaves: false }]);
        assert_eq!(life.step(Event::Checkpointed(Err("no".into())), now), []);
        let next = life.wake_at(now).expect("is tried again");
        pauses.push((next - now).as_secs());
        now = next;
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
}

#[test]
fn who_asks_for_a_checkpoint_gets_one_that_begins_later() {
    let mut life = running(POLICY);
    let begun = life.step(asked(1, Command::Checkpoint), at(2));
    assert_eq!(begun, [Action::Checkpoint { leaves: false }]);
    assert_eq!(life.step(asked(2, Command::Checkpoint), at(3)), []);
    let next = life.step(Event::Checkpointed(Ok(())), at(4));
    assert_eq!(next, [done(1), Action::Checkpoint { leaves: false }]);
    let last = life.step(Event::Checkpointed(Err("full".into())), at(5));
    assert_eq!(last, [refused(2, "full")]);
}

#[test]
fn a_job_that_somebody_kills_goes_on_from_its_image() {
    let mut first = running(POLICY);
    let end = first.step(KILLED, at(2));
    let completed = Action::Leave(Leave::Completed(End::Signalled(9)));
    assert_eq!(end, [completed], "there is no image");

    let mut life = with_image();
    for _ in 0..3 {
        assert_eq!(life.step(KILLED, at(110)), [Action::Restart]);
        assert_eq!(life.state(), State::Restarting);
        assert_eq!(life.step(Event::Runs, at(111)), []);
    }
    let ended = life.step(Event::Ended(End::Gone), at(112));
    let why = "it was killed 4 times since its last image".to_owned();
    assert_eq!(ended, [Action::Leave(held(why))]);
}

#[test]
fn a_job_without_an_image_begins_again_if_it_can() {
    let mut life = running(POLICY);
    life.note_outset(true);
    for _ in 0..3 {
        assert_eq!(life.step(KILLED, at(10)), [Action::Start]);
        assert_eq!(life.state(), State::Starting);
        assert_eq!(life.step(Event::Runs, at(11)), []);
    }
    let why = "it was killed 4 times before there was an image of it".to_owned();
    let ended = life.step(Event::Ended(End::Gone), at(12));
    assert_eq!(ended, [Action::Leave(held(why))]);

    // Whatever keeps it from beginning again, it is not forgotten.
    for (end, left) in [
        (End::Interrupted(15), Leave::Vacated),
        (
            End::NotBegun(3),
            held("it cannot be restarted (status 3)".into()),
        ),
    ] {
        let (mut life, _) = Life::begin(POLICY, First::Start);
        life.note_outset(false);
        assert_eq!(life.step(Event::Ended(end), at(1)), [Action::Leave(left)]);
    }
    let (mut life, _) = Life::begin(POLICY, First::Start);
    life.note_outset(true);
    let killed = life.step(Event::Ended(End::Gone), at(1));
    assert_eq!(killed, [Action::Pause(at(1))]);
    assert_eq!(life.step(Event::Time, at(2)), [Action::Start]);

    // What it has read is gone, unless it has not begun to.
    let (mut life, _) = Life::begin(POLICY, First::Start);
    life.note_outset(false);
    let mut early = life.clone();
    let killed = early.step(Event::Ended(End::Gone), at(1));
    assert_eq!(killed, [Action::Leave(Leave::Vacated)]);
    life.step(Event::Runs, at(1));
    let completed = Leave::Completed(End::Signalled(9));
    assert_eq!(life.step(KILLED, at(2)), [Action::Leave(completed)]);
}

#[test]
fn an_end_of_its_own_is_its_end_whatever_was_asked() {
    for command in [vacate(None, true), Command::Kill, hold("x")] {
        let mut life = with_image();
        life.step(asked(1, command), at(103));
        let mut actions = life.step(Event::Ended(End::Exited(7)), at(104));
        actions.extend(life.step(Event::Checkpointed(Err("gone".into())), at(104)));
        let ended = Action::Leave(Leave::Completed(End::Exited(7)));
        assert_eq!(actions, [refused(1, "the job has ended by itself"), ended]);
    }
}

/// The stop comes to the job before it is frozen for an image that was begun before, and the job was told to go on when that is gone on from.
#[test]
fn an_image_that_was_begun_before_a_suspension_may_be_of_a_job_that_stands_still() {
    let mut life = running(POLICY);
    let begun = life.step(asked(1, Command::Checkpoint), at(2));
    assert_eq!(begun, [Action::Checkpoint { leaves: false }]);
    life.step(asked(2, Command::Suspend), at(3));
    life.step(Event::Checkpointed(Ok(())), at(4));
    let goes_on = life.step(asked(3, Command::Continue), at(5));
    assert_eq!(goes_on, [Action::Go, done(3)]);
    let killed = life.step(Event::Ended(End::Gone), at(6));
    assert_eq!(killed, [Action::Restart]);
    assert!(life.may_stand());
    // It is not known whether it stands still: nobody tells that of a copy on another machine.
    assert_eq!(life.step(Event::Runs, at(7)), [Action::Go]);
    assert_eq!(life.state(), State::Running);
    // Whoever says it is heard, whatever we know.
    let again = life.step(asked(4, Command::Continue), at(8));
    assert_eq!(again, [Action::Go, done(4)]);
}

#[test]
fn a_suspended_job_works_where_it_goes_on() {
    let mut life = running(POLICY);
    let stop = life.step(asked(1, Command::Suspend), at(2));
    assert_eq!(
        (stop, life.state()),
        (vec![Action::Stop, done(1)], State::Suspended)
    );
    life.step(Event::Stopped, at(2));
    assert_eq!(life.step(Event::Time, at(500)), [], "none while suspended");
    life.step(asked(2, vacate(None, false)), at(501));
    life.step(Event::Checkpointed(Ok(())), at(502));
    assert!(life.may_stand());

    for early in [false, true] {
        let (mut next, first) = Life::begin(POLICY, First::Restart { may_stand: true });
        assert_eq!(first, [Action::Restart]);
        let mut events = vec![Event::Runs, Event::Stopped];
        if early {
            events.reverse();
        }
        let actions: Vec<Action> = events
            .into_iter()
            .flat_map(|event| next.step(event, at(1)))
            .collect();
        assert_eq!(actions, [Action::Go]);
        next.step(Event::Continued, at(2));
        assert_eq!(next.state(), State::Running);
        // Who stops it now means it, and from the same image it stands still again.
        assert_eq!(next.step(Event::Stopped, at(3)), []);
        assert_eq!(next.step(Event::Continued, at(4)), []);
        assert!(next.may_stand());
        let killed = next.step(Event::Ended(End::Gone), at(5));
        assert_eq!(killed, [Action::Restart]);
        assert_eq!(next.step(Event::Runs, at(6)), [Action::Go]);
        assert_eq!(next.state(), State::Running);
    }
}

/// The line may have been dead already.
#[test]
fn what_was_said_to_a_copy_whose_line_breaks_is_said_again() {
    let mut life = running(POLICY);
    let breaks = |life: &mut Life, second: u64| {
        assert_eq!(life.step(Event::Cut, at(second)), []);
        life.step(Event::Joined, at(second + 1))
    };
    assert_eq!(breaks(&mut life, 2), []);
    life.step(asked(1, Command::Suspend), at(4));
    assert_eq!(breaks(&mut life, 5), [Action::Stop]);
    life.step(asked(2, Command::Continue), at(7));
    assert_eq!(breaks(&mut life, 8), [Action::Go]);
    // What has stopped it since is not undone.
    assert_eq!(breaks(&mut life, 500), []);
    assert_eq!(life.step(asked(3, Command::Kill), at(502)), [Action::Kill]);
    assert_eq!(breaks(&mut life, 503), [Action::Kill]);
}

/// A stop that has nothing to do with an image is meant.
#[test]
fn who_stops_a_job_that_was_suspended_before_means_it() {
    let mut life = running(POLICY);
    life.step(asked(1, Command::Suspend), at(2));
    life.step(Event::Stopped, at(2));
    life.step(asked(2, Command::Continue), at(3));
    life.step(Event::Continued, at(3));
    assert_eq!(life.step(Event::Stopped, at(4)), []);
    assert_eq!(life.state(), State::Suspended);
}

#[test]
fn what_is_asked_before_it_runs_is_done_then() {
    let (mut life, _) = Life::begin(POLICY, First::Start);
    assert_eq!(life.step(asked(1, Command::Suspend), at(0)), []);
    assert_eq!(life.step(Event::Runs, at(1)), [Action::Stop, done(1)]);
    let (mut leaves, _) = Life::begin(POLICY, First::Start);
    assert_eq!(leaves.step(asked(1, vacate(None, false)), at(0)), []);
    let begun = leaves.step(Event::Runs, at(1));
    assert_eq!(begun, [Action::Checkpoint { leaves: true }]);
}

#[test]
fn what_cannot_start_says_so() {
    let (mut life, _) = Life::begin(POLICY, First::Start);
    let ended = life.step(Event::Ended(End::NotBegun(127)), at(1));
    assert_eq!(ended, [Action::Leave(Leave::NotBegun(127))]);
    let (mut again, _) = Life::begin(POLICY, First::Restart { may_stand: false });
    let ended = again.step(Event::Ended(End::NotBegun(4)), at(1));
    let why = "it cannot be restarted (status 4)".to_owned();
    assert_eq!(ended, [Action::Leave(held(why))]);
}

#[test]
fn a_signal_to_all_is_a_vacate() {
    let mut life = with_image();
    life.step(asked(1, vacate(None, true)), at(103));
    assert_eq!(life.step(Event::Ended(End::Signalled(15)), at(104)), []);
    let left = life.step(Event::Checkpointed(Err("gone".into())), at(105));
    assert_eq!(left, [done(1), Action::Leave(Leave::Vacated)]);
    // Without an image it is the end.
    let mut without = running(POLICY);
    without.step(asked(1, vacate(None, true)), at(2));
    without.step(Event::Ended(End::Signalled(15)), at(3));
    let ended = without.step(Event::Checkpointed(Err("gone".into())), at(3));
    let completed = Action::Leave(Leave::Completed(End::Signalled(15)));
    assert_eq!(ended.last(), Some(&completed));
}

#[test]
fn what_is_interrupted_before_it_runs_has_not_ended() {
    let (mut life, _) = Life::begin(POLICY, First::Start);
    let ended = life.step(Event::Ended(End::Interrupted(1)), at(1));
    assert_eq!(ended, [Action::Leave(Leave::NotBegun(129))]);
    let (mut killed, _) = Life::begin(POLICY, First::Start);
    let ended = killed.step(Event::Ended(End::Gone), at(1));
    assert_eq!(ended, [Action::Leave(Leave::NotBegun(137))]);
    let (mut again, _) = Life::begin(POLICY, First::Restart { may_stand: false });
    let ended = again.step(Event::Ended(End::Interrupted(1)), at(1));
    assert_eq!(ended, [Action::Leave(Leave::Vacated)]);
}

/// What can happen next, as far as it can: a number chooses.
#[derive(Clone, Debug)]
enum Chance {
    Runs,
    CanBeginAgain(bool),
    Ends(End),
    Makes(bool),
    Stops(bool),
    Asks(Command),
    Passes(u64),
    Cuts(bool),
    Refuses(bool),
}

fn chance() -> impl Strategy<Value = Chance> {
    let end = prop_oneof![
        Just(End::Exited(0)),
        Just(End::Signalled(9)),
        Just(End::Signalled(15)),
        Just(End::Gone),
        Just(End::NotBegun(3)),
        Just(End::Interrupted(1)),
    ];
    let command = prop_oneof![
        Just(Command::Suspend),
        Just(Command::Continue),
        Just(Command::Checkpoint),
        Just(Command::Abort),
        (proptest::option::of(0u64..50), any::<bool>())
            .prop_map(|(within, insists)| vacate(within, insists)),
        any::<bool>().prop_map(|at_any_price| Command::VacateLatest { at_any_price }),
        any::<bool>().prop_map(|insists| Command::Hold {
            hold: Hold::new("why".to_owned(), Hold::BY_MACHINE),
            insists,
        }),
        Just(Command::Kill),
        Just(Command::GoBack),
        Just(Command::Migrate {
            to: "there".to_owned()
        }),
    ];
    prop_oneof![
        4 => Just(Chance::Runs),
        1 => any::<bool>().prop_map(Chance::CanBeginAgain),
        1 => end.prop_map(Chance::Ends),
        4 => any::<bool>().prop_map(Chance::Makes),
        2 => any::<bool>().prop_map(Chance::Stops),
        2 => command.prop_map(Chance::Asks),
        1 => any::<bool>().prop_map(Chance::Cuts),
        1 => any::<bool>().prop_map(Chance::Refuses),
        4 => (1u64..90).prop_map(Chance::Passes),
    ]
}

/// A copy of the job, as it is in truth.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Copy {
    None,
    Starting,
    Running,
    /// Killed, and nobody knows it yet.
    Dying,
}

struct World {
    life: Life,
    now: Duration,
    copy: Copy,
    making: Option<bool>,
    asked: u64,
    answered: Vec<u64>,
    left: Option<Leave>,
}

impl World {
    fn new(first: First) -> Self {
        let (life, actions) = Life::begin(POLICY, first);
        let mut world = World {
            life,
            now: Duration::ZERO,
            copy: Copy::None,
            making: None,
            asked: 0,
            answered: vec![],
            left: None,
        };
        world.act(actions);
        world
    }

    fn tell(&mut self, event: Event) {
        assert_eq!(self.left, None);
        let actions = self.life.step(event, self.now);
        self.act(actions);
    }

    fn act(&mut self, actions: Vec<Action>) {
        for action in actions {
            assert_eq!(self.left, None, "nothing comes after the end: {action:?}");
            match action {
                Action::Start | Action::Restart => {
                    assert_eq!(self.copy, Copy::None, "there is one copy");
                    self.copy = Copy::Starting;
                }
                Action::Checkpoint { leaves } => {
                    assert_eq!(self.making, None, "there is one checkpoint");
                    assert_eq!(self.copy, Copy::Running, "of what runs");
                    self.making = Some(leaves);
                }
                Action::AbandonCheckpoint | Action::AbortCheckpoint => {
                    assert!(self.making.is_some());
                }
                Action::Kill | Action::KillAll => {
                    if self.copy != Copy::None {
                        self.copy = Copy::Dying;
                    }
                }
                Action::Stop | Action::Go => {}
                Action::Pause(_) => assert_eq!(self.copy, Copy::None, "it is killed"),
                Action::Answer(Who(who), _) => {
                    assert!(!self.answered.contains(&who), "{who} is answered once");
                    self.answered.push(who);
                }
                Action::Leave(leave) => {
                    assert_eq!(
                        (self.copy, self.making),
                        (Copy::None, None),
                        "nothing is left"
                    );
                    self.left = Some(leave);
                }
            }
        }
    }

    fn happens(&mut self, chance: Chance) {
        match chance {
            Chance::Runs if self.copy == Copy::Starting => {
                self.copy = Copy::Running;
                self.tell(Event::Runs);
            }
            Chance::CanBeginAgain(at_once) => self.life.note_outset(at_once),
            Chance::Ends(end) => {
                let fits = match end {
                    End::NotBegun(_) | End::Interrupted(_) => self.copy == Copy::Starting,
                    End::Gone => self.copy != Copy::None,
                    End::Signalled(9) => matches!(self.copy, Copy::Running | Copy::Dying),
                    _ => self.copy == Copy::Running,
                };
                if fits {
                    self.copy = Copy::None;
                    self.tell(Event::Ended(end));
                }
            }
            Chance::Makes(well) => {
                let Some(leaves) = self.making.take() else {
                    return;
                };
                let well = well && self.copy == Copy::Running;
                if well && leaves {
                    self.copy = Copy::Dying;
                }
                let made = if well {
                    Ok(())
                } else {
                    Err("not now".to_owned())
                };
                self.tell(Event::Checkpointed(made));
            }
            Chance::Stops(stops) if self.copy == Copy::Running => {
                self.tell(if stops {
                    Event::Stopped
                } else {
                    Event::Continued
                });
            }
            Chance::Cuts(cuts) if self.copy == Copy::Running => {
                self.tell(if cuts { Event::Cut } else { Event::Joined });
            }
            Chance::Refuses(there_is_more) if self.copy == Copy::Starting => {
                self.copy = Copy::None;
                self.tell(Event::Refused(match there_is_more {
                    true => Remains::Older,
                    false => Remains::Nothing,
                }));
            }
            Chance::Asks(command) => {
                self.asked += 1;
                self.tell(asked(self.asked, command));
            }
            Chance::Passes(seconds) => {
                self.now += at(seconds);
                let suspended = self.life.state() == State::Suspended;
                let made = self.making.is_some();
                self.tell(Event::Time);
                assert!(
                    !suspended || made || self.making.is_none(),
                    "none while suspended"
                );
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// One copy, one checkpoint, one answer, one end; and there is an end as soon as somebody wants one.
    #[test]
    fn whatever_happens_a_job_is_there_once_and_leaves_once(
        chances in prop::collection::vec(chance(), 0..60),
        restarted in any::<bool>(),
    ) {
        let first = if restarted { First::Restart { may_stand: true } } else { First::Start };
        let mut world = World::new(first);
        for chance in chances {
            if world.left.is_none() {
                world.happens(chance);
            }
        }
        if world.left.is_none() {
            world.happens(Chance::Asks(Command::Kill));
        }
        for _ in 0..3 {
            for chance in [Chance::Makes(false), Chance::Ends(End::Gone), Chance::Passes(11)] {
                if world.left.is_none() {
                    world.happens(chance);
                }
            }
        }
        prop_assert!(world.left.is_some(), "{:?}", world.life);
    }
}
