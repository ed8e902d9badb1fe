//! Jobs that are told to leave: with an image, without, held, or not yet.

use super::*;

#[test]
fn a_vacate_leaves_with_an_image() {
    let mut life = running(POLICY);
    let begun = life.step(asked(1, vacate(None, false)), at(2));
    assert_eq!(begun, [Action::Checkpoint { leaves: true }]);
    assert_eq!(life.state(), State::Vacating);
    let late = life.step(asked(2, Command::Suspend), at(3));
    assert_eq!(late, [refused(2, "the job is leaving")]);
    // Either may be known first.
    let mut other = life.clone();
    assert_eq!(life.step(KILLED, at(4)), []);
    let left = life.step(Event::Checkpointed(Ok(())), at(5));
    assert_eq!(left, [done(1), Action::Leave(Leave::Vacated)]);
    assert_eq!(other.step(Event::Checkpointed(Ok(())), at(4)), []);
    let left = other.step(KILLED, at(5));
    assert_eq!(left, [done(1), Action::Leave(Leave::Vacated)]);
    assert_eq!((life.state(), other.state()), (State::Idle, State::Idle));
}

#[test]
fn a_vacate_that_is_refused_changes_nothing_or_insists() {
    let mut life = running(POLICY);
    let mut insisting = life.clone();
    life.step(asked(1, vacate(None, false)), at(2));
    let stays = life.step(Event::Checkpointed(Err("socket".into())), at(3));
    assert_eq!(
        (stays, life.state()),
        (vec![refused(1, "socket")], State::Running)
    );

    insisting.step(asked(1, vacate(Some(10), true)), at(2));
    let again = insisting.step(Event::Checkpointed(Err("socket".into())), at(3));
    assert_eq!((again, insisting.state()), (vec![], State::Vacating));
    let next = insisting.wake_at(at(3)).expect("is tried again");
    assert_eq!(next, Duration::from_millis(3250));
    let begun = insisting.step(Event::Time, next);
    assert_eq!(begun, [Action::Checkpoint { leaves: true }]);
    // Its time is over while that is still being made.
    assert_eq!(insisting.wake_at(next), Some(at(12)));
    let over = insisting.step(Event::Time, at(12));
    assert_eq!(over, [Action::AbandonCheckpoint, Action::Kill]);
    assert_eq!(insisting.step(KILLED, at(13)), []);
    let left = insisting.step(Event::Checkpointed(Err("killed".into())), at(13));
    assert_eq!(left, [done(1), Action::Leave(Leave::Vacated)]);
    assert!(!insisting.has_image());
}

#[test]
fn the_last_image_will_do_when_nobody_may_be_disturbed() {
    let mut without = running(POLICY);
    let latest = |at_any_price| Command::VacateLatest { at_any_price };
    let none = without.step(asked(1, latest(false)), at(2));
    assert_eq!(none, [refused(1, "there is no image of the job yet")]);
    assert_eq!(without.step(asked(2, latest(true)), at(3)), [Action::Kill]);
    let mut life = with_image();
    assert_eq!(life.step(asked(1, latest(false)), at(103)), [Action::Kill]);
    let left = life.step(KILLED, at(104));
    assert_eq!(left, [done(1), Action::Leave(Leave::Vacated)]);
}

#[test]
fn what_does_not_go_is_killed_with_everything() {
    let mut life = with_image();
    life.step(asked(1, Command::Kill), at(103));
    assert_eq!(life.wake_at(at(104)), Some(at(113)));
    assert_eq!(life.step(Event::Time, at(113)), [Action::KillAll]);
    assert_eq!(life.step(Event::Time, at(123)), [Action::KillAll]);
    let left = life.step(Event::Ended(End::Gone), at(124));
    assert_eq!(left, [done(1), Action::Leave(Leave::Killed)]);
    assert_eq!(life.state(), State::Removed);
}

#[test]
fn a_hold_that_insists_is_tried_again_and_outlives_a_kill() {
    let by_machine = Hold::new("x".to_owned(), Hold::BY_MACHINE);
    let insists = Command::Hold {
        hold: by_machine.clone(),
        insists: true,
    };
    let mut life = running(POLICY);
    let begun = life.step(asked(1, insists), at(2));
    assert_eq!(begun, [Action::Checkpoint { leaves: true }]);
    let refused = Event::Checkpointed(Err("a connection".into()));
    assert_eq!(life.step(refused, at(3)), []);
    let again = life.step(Event::Time, at(4));
    assert_eq!(again, [Action::Checkpoint { leaves: true }]);
    // Its time is over: it leaves without an image, and is held all the same.
    let kill = Command::VacateLatest { at_any_price: true };
    let killed = life.step(asked(2, kill), at(5));
    assert_eq!(killed, [Action::AbandonCheckpoint, Action::Kill]);
    let mut left = life.step(KILLED, at(6));
    left.extend(life.step(Event::Checkpointed(Err("gone".into())), at(6)));
    let held = Action::Leave(Leave::Held(by_machine));
    assert_eq!(left, [done(1), done(2), held]);
}

#[test]
fn a_job_that_stands_still_and_cannot_leave_goes_on_until_it_can() {
    let refused = || Event::Checkpointed(Err("socket".into()));
    let stopped_by_somebody = Event::Stopped;
    for event in [asked(1, Command::Suspend), stopped_by_somebody] {
        let mut life = running(POLICY);
        life.step(event, at(2));
        assert_eq!(life.state(), State::Suspended);
        let begun = life.step(asked(2, vacate(None, true)), at(3));
        assert_eq!(begun, [Action::Checkpoint { leaves: true }]);
        assert_eq!(life.step(refused(), at(4)), [Action::Go]);
        assert_eq!((life.state(), life.is_still()), (State::Vacating, false));
        assert_eq!(life.step(Event::Continued, at(4)), []);
        let next = life.wake_at(at(4)).expect("is tried again");
        assert_eq!(
            life.step(Event::Time, next),
            [Action::Checkpoint { leaves: true }]
        );
        // Once is enough.
        assert_eq!(life.step(refused(), next), []);
    }
    // One that may stay stands still on.
    let mut life = running(POLICY);
    life.step(asked(1, Command::Suspend), at(2));
    life.step(asked(2, vacate(None, false)), at(3));
    let stays = life.step(refused(), at(4));
    assert_eq!(stays, [self::refused(2, "socket")]);
    assert_eq!((life.state(), life.is_still()), (State::Suspended, true));
}
