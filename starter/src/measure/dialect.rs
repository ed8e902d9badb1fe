//! The eras of Condor whose policies run here, and which attribute a machine's ad has in which of them.

use crate::machine::rules;
use classad::config::Dialect;

/// What an era's ads are like.
pub trait Era {
    /// Whether an ad of this era has the attribute. Names that are made (`has_avx2`, `slot2_State`, those of STARTD_ATTRS) are not asked for.
    #[must_use]
    fn has(self, attribute: &str) -> bool;

    /// What a slot's names begin with: `vm1_State`, `slot1@host`.
    #[must_use]
    fn slot_prefix(self) -> &'static str;

    /// What a slot's attributes are called, seen from other slots: `vm1_`, `slot1_`, `slot1_2_`.
    #[must_use]
    fn slot_name(self, id: u32, sub_id: Option<u32>) -> String;
}

impl Era for Dialect {
    fn has(self, attribute: &str) -> bool {
        let bit = match self {
            Dialect::V6_1 => OLD,
            Dialect::V6_8 => MID,
            Dialect::V25 => NEW,
        };
        let row = ATTRIBUTES.iter().find(|row| row.0 == attribute);
        row.is_some_and(|row| row.1 & bit != 0)
    }

    fn slot_prefix(self) -> &'static str {
        rules(self).slot_prefix
    }

    fn slot_name(self, id: u32, sub_id: Option<u32>) -> String {
        let prefix = self.slot_prefix();
        match sub_id {
            Some(sub_id) => format!("{prefix}{id}_{sub_id}"),
            None => format!("{prefix}{id}"),
        }
    }
}

const OLD: u8 = 1;
const MID: u8 = 2;
const NEW: u8 = 4;
const SIX: u8 = OLD | MID;
const LATE: u8 = MID | NEW;
const ALL: u8 = OLD | MID | NEW;

/// Attributes, and the eras that have them: 1 for 6.1, 2 for 6.8, 4 for 25 (manual 6.8 §3.5.1; for 25, what its startd publishes and its
/// manual's policies use; for 6.1, whose list is lost, what its policies and its successor's sources use).
pub const ATTRIBUTES: &[(&str, u8)] = &[
    ("Activity", ALL),
    ("Arch", ALL),
    ("CheckpointPlatform", LATE),
    ("ClientMachine", ALL),
    ("ClockDay", ALL),
    ("ClockMin", ALL),
    ("CondorLoadAvg", ALL),
    ("ConsoleIdle", ALL),
    ("CpuBusy", ALL),
    ("CpuBusyTime", ALL),
    ("CpuBusyValue", NEW),
    ("CpuCacheSize", NEW),
    ("CpuFamily", NEW),
    ("CpuIsBusy", ALL),
    ("CpuModelNumber", NEW),
    ("Cpus", ALL),
    ("CurrentRank", ALL),
    ("CurrentTime", SIX),
    ("DSlotId", NEW),
    ("DetectedCpus", NEW),
    ("DetectedMemory", NEW),
    ("Disk", ALL),
    ("DynamicSlot", NEW),
    ("EnteredCurrentActivity", ALL),
    ("EnteredCurrentState", ALL),
    ("FileSystemDomain", ALL),
    ("HasUserNamespaces", NEW),
    ("ImageSize", ALL),
    ("IsValidCheckpointPlatform", LATE),
    ("JobId", ALL),
    ("JobStart", ALL),
    ("KFlops", ALL),
    ("KeyboardIdle", ALL),
    ("LastBenchmark", ALL),
    ("LastPeriodicCheckpoint", ALL),
    ("LoadAvg", ALL),
    ("Machine", ALL),
    ("MachineMaxVacateTime", NEW),
    ("MachineResources", NEW),
    ("MaxJobRetirementTime", LATE),
    ("Memory", ALL),
    ("Microarch", NEW),
    ("Mips", ALL),
    ("MyAddress", NEW),
    ("MyCurrentTime", NEW),
    ("MyType", ALL),
    ("Name", ALL),
    ("OpSys", ALL),
    ("OpSysAndVer", NEW),
    ("OpSysLegacy", NEW),
    ("OpSysLongName", NEW),
    ("OpSysMajorVer", NEW),
    ("OpSysName", NEW),
    ("OpSysShortName", NEW),
    ("OpSysVer", NEW),
    ("ParentSlotId", NEW),
    ("PartitionableSlot", NEW),
    ("PreemptingOwner", LATE),
    ("PreemptingRank", LATE),
    ("PreemptingUser", LATE),
    ("Rank", ALL),
    ("RemoteOwner", ALL),
    ("RemoteUser", ALL),
    ("Requirements", ALL),
    ("SlotID", NEW),
    ("SlotType", NEW),
    ("SlotTypeID", NEW),
    ("SlotWeight", NEW),
    ("Start", ALL),
    ("StartdIpAddr", ALL),
    ("State", ALL),
    ("TargetType", ALL),
    ("TotalClaimRunTime", LATE),
    ("TotalClaimSuspendTime", LATE),
    ("TotalCondorLoadAvg", ALL),
    ("TotalCpus", LATE),
    ("TotalDisk", LATE),
    ("TotalJobRunTime", LATE),
    ("TotalJobSuspendTime", LATE),
    ("TotalLoadAvg", ALL),
    ("TotalMemory", LATE),
    ("TotalSlotCpus", NEW),
    ("TotalSlotDisk", NEW),
    ("TotalSlotMemory", NEW),
    ("TotalSlots", NEW),
    ("TotalTimeBackfillBusy", NEW),
    ("TotalTimeBackfillIdle", NEW),
    ("TotalTimeBackfillKilling", NEW),
    ("TotalTimeClaimedBusy", NEW),
    ("TotalTimeClaimedIdle", NEW),
    ("TotalTimeClaimedRetiring", NEW),
    ("TotalTimeClaimedSuspended", NEW),
    ("TotalTimeDrainedIdle", NEW),
    ("TotalTimeDrainedRetiring", NEW),
    ("TotalTimeMatchedIdle", NEW),
    ("TotalTimeOwnerIdle", NEW),
    ("TotalTimePreemptingKilling", NEW),
    ("TotalTimePreemptingVacating", NEW),
    ("TotalTimeUnclaimedBenchmarking", NEW),
    ("TotalTimeUnclaimedIdle", NEW),
    ("TotalVirtualMachines", SIX),
    ("TotalVirtualMemory", ALL),
    ("UidDomain", ALL),
    ("UtsnameMachine", NEW),
    ("UtsnameNodename", NEW),
    ("UtsnameRelease", NEW),
    ("UtsnameSysname", NEW),
    ("UtsnameVersion", NEW),
    ("VirtualMachineID", SIX),
    ("VirtualMemory", ALL),
    ("WithinResourceLimits", NEW),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eras_have_their_own_names() {
        assert!(Dialect::V6_8.has("VirtualMachineID") && !Dialect::V25.has("VirtualMachineID"));
        assert!(Dialect::V25.has("SlotID") && !Dialect::V6_8.has("SlotID"));
        assert!(Dialect::V6_1.has("CurrentTime") && !Dialect::V25.has("CurrentTime"));
        assert!(!Dialect::V6_1.has("CheckpointPlatform"));
        assert!(!Dialect::V25.has("NoSuchThing"));
        assert_eq!(Dialect::V6_1.slot_name(2, None), "vm2");
        assert_eq!(Dialect::V25.slot_name(1, Some(3)), "slot1_3");
    }

    #[test]
    fn the_table_is_sorted_and_names_nothing_twice() {
        assert!(ATTRIBUTES.windows(2).all(|two| two[0].0 < two[1].0));
    }
}
