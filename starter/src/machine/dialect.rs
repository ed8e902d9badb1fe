//! What changed between the eras of Condor, as data.
//!
//! | | 6.1 | 6.8 | 25 |
//! |---|---|---|---|
//! | a slot is its owner's while | START is locally FALSE | `IsOwner`, by default `START =?= FALSE` | `IS_OWNER`, by default FALSE |
//! | `MATCH_TIMEOUT` | 300 | 120 | 120 |
//! | PREEMPT of a job that runs is looked at when WANT_SUSPEND is | FALSE | FALSE | anything but TRUE |
//! | WANT_VACATE is asked | always | after PREEMPT | after PREEMPT |
//! | an expression that is missing | never TRUE | never TRUE | has a default |
//! | a job vacates until | KILL | KILL | KILL, or `MachineMaxVacateTime` |
//! | retirement | none | `MaxJobRetirementTime` | `MaxJobRetirementTime` |
//! | `CLAIM_WORKLIFE` | none | none | 1200 |
//! | `CurrentTime` is an attribute | yes | yes | no: `time()` |
//! | slots are called | vm1 | vm1 | slot1 |
//! | the keyboard is connected to | one slot | one slot | all |
//! | backfill | no | yes | yes |
//! | draining | no | no | yes |
//! | `WANT_HOLD` | no | no | yes |

use super::words::Moment;
use classad::config::Dialect;

/// What a dialect's rules are.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The expression of `IsOwner` where there is none.
    pub is_owner: &'static str,
    /// Seconds until who was matched is not waited for any more.
    pub match_timeout: i64,
    /// Whether PREEMPT is looked at where WANT_SUSPEND is neither TRUE nor FALSE.
    pub unknown_preempts: bool,
    /// Whether WANT_VACATE is asked whatever the reason, or only after PREEMPT was TRUE.
    pub always_asks_vacate: bool,
    /// Whether `MachineMaxVacateTime` ends vacating.
    pub limits_vacating: bool,
    /// Whether a job may retire.
    pub retires: bool,
    /// Whether there is backfill.
    pub backfills: bool,
    /// Whether there is draining.
    pub drains: bool,
    /// Whether `WANT_HOLD` is asked when a job has to leave.
    pub holds: bool,
    /// Whether `CurrentTime` is an attribute.
    pub current_time: bool,
    /// What slots are called, without their number.
    pub slot_prefix: &'static str,
    /// The attribute that is the slot's number.
    pub slot_number: &'static str,
    /// The attribute that is the number of slots.
    pub slot_count: &'static str,
    /// How many slots the keyboard is connected to by itself; none: all of them.
    pub keyboard_slots: Option<u32>,
}

/// The rules of a dialect.
pub fn rules(dialect: Dialect) -> Rules {
    let old = Rules {
        is_owner: "START =?= FALSE",
        match_timeout: 120,
        unknown_preempts: false,
        always_asks_vacate: false,
        limits_vacating: false,
        retires: true,
        backfills: true,
        drains: false,
        holds: false,
        current_time: true,
        slot_prefix: "vm",
        slot_number: "VirtualMachineID",
        slot_count: "TotalVirtualMachines",
        keyboard_slots: Some(1),
    };
    match dialect {
        Dialect::V6_1 => Rules {
            match_timeout: 300,
            always_asks_vacate: true,
            retires: false,
            backfills: false,
            ..old
        },
        Dialect::V6_8 => old,
        Dialect::V25 => Rules {
            is_owner: "FALSE",
            unknown_preempts: true,
            limits_vacating: true,
            drains: true,
            holds: true,
            current_time: false,
            slot_prefix: "slot",
            slot_number: "SlotID",
            slot_count: "TotalSlots",
            keyboard_slots: None,
            ..old
        },
    }
}

/// The value of a setting where there is none: in 25 as `htcondor2.param` has it; before, the manuals' policies had to have them all.
pub(super) fn default_of(dialect: Dialect, name: &str) -> Option<&'static str> {
    let common = match name {
        "KILLING_TIMEOUT" => Some("30"),
        "POLLING_INTERVAL" => Some("5"),
        "UPDATE_INTERVAL" | "ALIVE_INTERVAL" => Some("300"),
        "MAX_CLAIM_ALIVES_MISSED" => Some("6"),
        "DISCONNECTED_KEYBOARD_IDLE_BOOST" => Some("1200"),
        "CLAIM_WORKLIFE" if dialect != Dialect::V25 => Some("-1"),
        "MAXJOBRETIREMENTTIME" => Some("0"),
        "RANK" => Some("0.0"),
        "MODIFY_REQUEST_EXPR_REQUESTCPUS" => Some("quantize(RequestCpus, {1})"),
        "MODIFY_REQUEST_EXPR_REQUESTMEMORY" => Some("quantize(RequestMemory, {128})"),
        "MODIFY_REQUEST_EXPR_REQUESTDISK" => Some("quantize(RequestDisk, {1024})"),
        "CONSUMPTION_CPUS" => Some("quantize(target.RequestCpus, {1})"),
        "CONSUMPTION_MEMORY" => Some("quantize(target.RequestMemory, {128})"),
        "CONSUMPTION_DISK" => Some("quantize(target.RequestDisk, {1024})"),
        _ => None,
    };
    if common.is_some() || dialect != Dialect::V25 {
        return common;
    }
    Some(match name {
        "START" | "CONTINUE" | "WANT_VACATE" => "TRUE",
        "SUSPEND" | "PREEMPT" | "KILL" | "WANT_SUSPEND" | "WANT_HOLD" => "FALSE",
        "MachineMaxVacateTime" => "600",
        "SLOT_WEIGHT" => "Cpus",
        "CLAIM_WORKLIFE" => "1200",
        "PERIODIC_CHECKPOINT" => "((time() - LastPeriodicCheckpoint) / 60.0) > (180.0 + 25)",
        "RunBenchmarks" => "LastBenchmark == 0",
        _ => return None,
    })
}

/// The minute of the day and the day of the week (Sunday is 0) of a local clock.
pub(super) fn clock(now: Moment, utc_offset: i32) -> (i64, i64) {
    let local = now + i64::from(utc_offset);
    let day = local.div_euclid(86_400);
    // 1970 began on a Thursday.
    (local.rem_euclid(86_400) / 60, (day + 4).rem_euclid(7))
}
