//! Copies that are killed before they run.

use super::*;

/// A job that goes on from an image, whose first copy was killed before it ran.
fn killed_on_its_way() -> Life {
    let (mut life, _) = Life::begin(POLICY, First::Restart { may_stand: false });
    assert_eq!(life.step(KILLED, at(10)), [Action::Pause(at(1))]);
    assert_eq!(life.state(), State::Restarting);
    life
}

#[test]
fn a_copy_that_is_killed_before_it_runs_is_begun_again_after_a_pause_and_not_for_ever() {
    let mut life = killed_on_its_way();
    for (moment, pause) in [(11, 2), (13, 4)] {
        assert_eq!(life.wake_at(at(10)), Some(at(moment)));
        assert_eq!(
            life.step(Event::Time, at(moment) - Duration::from_millis(1)),
            []
        );
        assert_eq!(life.step(Event::Time, at(moment)), [Action::Restart]);
        let killed = life.step(Event::Ended(End::Gone), at(moment));
        assert_eq!(killed, [Action::Pause(at(pause))]);
    }
    assert_eq!(life.step(Event::Time, at(17)), [Action::Restart]);
    let why = "it was killed 4 times since its last image".to_owned();
    assert_eq!(life.step(KILLED, at(18)), [Action::Leave(held(why))]);
}

#[test]
fn a_job_that_waits_to_be_begun_leaves_at_once_when_it_is_told_to() {
    for (command, left, state) in [
        (vacate(None, false), Leave::Vacated, State::Idle),
        (vacate(Some(9), true), Leave::Vacated, State::Idle),
        (
            Command::VacateLatest {
                at_any_price: false,
            },
            Leave::Vacated,
            State::Idle,
        ),
        (Command::Kill, Leave::Killed, State::Removed),
    ] {
        let mut life = killed_on_its_way();
        let actions = life.step(asked(1, command), at(10));
        assert_eq!(actions, [done(1), Action::Leave(left)]);
        assert_eq!((life.state(), life.wake_at(at(10))), (state, None));
    }
}

#[test]
fn what_is_asked_of_a_job_that_waits_to_be_begun_is_done_when_it_runs() {
    let mut life = killed_on_its_way();
    assert_eq!(life.step(asked(1, Command::Suspend), at(10)), []);
    assert_eq!(life.step(Event::Time, at(11)), [Action::Restart]);
    assert_eq!(life.step(Event::Runs, at(12)), [Action::Stop, done(1)]);
}

#[test]
fn kills_are_counted_since_the_last_image_whoever_has_made_that() {
    for is_new in [true, false] {
        let mut life = killed_on_its_way();
        for _ in 0..5 {
            if life.state() == State::Held {
                break;
            }
            life.step(Event::Time, at(100));
            life.step(Event::Runs, at(100));
            life.note_image(is_new);
            life.step(KILLED, at(101));
        }
        assert_eq!(life.state() == State::Held, !is_new);
    }
}
