//! Dividing a machine into slots (current manual, "Dividing System Resources in Multi-core Machines").
//!
//! ```text
//! NUM_SLOTS_TYPE_n, SLOT_TYPE_n --shares--> slots of types     NUM_SLOTS --> static slots, all alike
//! neither: 25 has one partitionable slot with everything, before there was one slot for each processor
//! ```
//! # What callers may rely on
//! No two slots have the same thing: what they want together is there, or it is an error.
//!
//! # What it does not do
//! It does not choose which devices a slot has (`GPUs = 1 : Capability >= 8.0`): that is `devices.rs`.

use super::devices::{self, Constraint, Device, Devices, Wanted};
use super::policy::{PolicyError, Reader, Settings};
use super::slot::Kind;
use classad::config::{Config, Dialect};
use classad::{ClassAd, Expr};

/// The most slots.
const MOST_SLOTS: i64 = 1024;

/// What the machine has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Detected {
    /// Processors.
    pub cpus: i64,
    /// Memory, in MiB.
    pub memory_mib: i64,
    /// Room on disk, in KiB.
    pub disk_kib: i64,
    /// Swap space, in KiB.
    pub swap_kib: i64,
    /// What the inventories of its resources say (`MACHINE_RESOURCE_INVENTORY_x`), by the resource's name.
    pub inventories: Vec<(String, ClassAd)>,
}

/// Resources that every machine has, in the order in which shares may name them by their first letters.
pub(super) const OF_EVERY_MACHINE: [&str; 4] = ["Cpus", "Memory", "Disk", "VirtualMemory"];

/// The names of the resources that a slot was given.
pub(super) fn resource_names(resources: &ClassAd) -> impl Iterator<Item = String> {
    let names = resources.iter().map(|(name, _)| name.to_string());
    names.filter_map(|name| name.strip_prefix("TotalSlot").map(str::to_owned))
}

/// A slot to be.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub(super) slot_type: Option<u32>,
    pub(super) kind: Kind,
    pub(super) resources: ClassAd,
    pub(super) devices: Devices,
}

/// How much of a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Share {
    Auto,
    Some(i64),
    Part(f64),
}

/// How much of a resource a slot type has, and which.
#[derive(Clone, Debug)]
struct Portion {
    share: Share,
    constraint: Option<Constraint>,
}

impl Portion {
    const AUTO: Portion = Portion {
        share: Share::Auto,
        constraint: None,
    };
}

/// A resource: its attribute, how much of it there is, and whether that changes by itself.
struct Resource {
    attribute: String,
    total: i64,
    changes: bool,
    /// Those that have names.
    devices: Vec<Device>,
}

/// The plan of a configuration.
///
/// # Errors
/// [`PolicyError`]: a share says nothing, or there is not enough.
pub(super) fn plan(
    settings: &Settings<'_>,
    dialect: Dialect,
    detected: &Detected,
) -> Result<Vec<Planned>, PolicyError> {
    let reader = Reader {
        settings,
        dialect,
        slot_type: None,
    };
    let resources = resources(&reader, detected)?;
    let mut wanted = vec![];
    for slot_type in 1..=reader
        .number_if("MAX_SLOT_TYPES")?
        .unwrap_or(10)
        .min(MOST_SLOTS)
    {
        let named = |new: &str, old: &str| -> Result<Option<i64>, PolicyError> {
            match reader.number_if(&format!("{new}{slot_type}"))? {
                Some(number) => Ok(Some(number)),
                None => reader.number_if(&format!("{old}{slot_type}")),
            }
        };
        let count = named("NUM_SLOTS_TYPE_", "NUM_VIRTUAL_MACHINES_TYPE_")?.unwrap_or(0);
        let name = format!("SLOT_TYPE_{slot_type}");
        limit(&name, count)?;
        let old = format!("VIRTUAL_MACHINE_TYPE_{slot_type}");
        let text = reader
            .text(&name)
            .or_else(|| reader.text(&old))
            .unwrap_or_default();
        let shares = shares(&name, &text, &resources)?;
        let kind = match reader.is_true(&format!("{name}_PARTITIONABLE")) {
            true => Kind::Partitionable,
            false => Kind::Static,
        };
        let slot_type = u32::try_from(slot_type).ok();
        for _ in 0..count.max(0) {
            wanted.push((slot_type, kind, shares.clone()));
        }
    }
    if wanted.is_empty() {
        let same = match reader.number_if("NUM_SLOTS")? {
            Some(number) => Some(number),
            None => reader.number_if("NUM_VIRTUAL_MACHINES")?,
        };
        let cpus = resources[0].total;
        let (count, kind) = match same {
            Some(number) => (number.min(cpus), Kind::Static),
            None if dialect == Dialect::V25 => (1, Kind::Partitionable),
            None => (cpus, Kind::Static),
        };
        limit("NUM_SLOTS", count)?;
        let auto = vec![Portion::AUTO; resources.len()];
        wanted = (0..count.max(1))
            .map(|_| (None, kind, auto.clone()))
            .collect();
    }
    limit(
        "NUM_SLOTS_TYPE_n",
        i64::try_from(wanted.len()).unwrap_or(i64::MAX),
    )?;
    let mut planned: Vec<Planned> = wanted
        .iter()
        .map(|(slot_type, kind, _)| Planned {
            slot_type: *slot_type,
            kind: *kind,
            resources: ClassAd::new(),
            devices: Devices::new(),
        })
        .collect();
    for (index, resource) in resources.iter().enumerate() {
        let portions = || wanted.iter().map(|(_, _, portions)| &portions[index]);
        let column: Vec<Share> = portions().map(|portion| portion.share).collect();
        let amounts = amounts(resource, &column)?;
        if !resource.devices.is_empty() {
            let which = portions().map(|portion| portion.constraint.as_ref());
            let wanted: Vec<Wanted<'_>> = amounts.iter().copied().zip(which).collect();
            let dealt = devices::deal(&resource.attribute, &resource.devices, &wanted)?;
            for (slot, devices) in planned.iter_mut().zip(dealt) {
                slot.devices.insert(resource.attribute.clone(), devices);
            }
        }
        for (slot, amount) in planned.iter_mut().zip(amounts) {
            let name = &resource.attribute;
            let mut set = |name: &str, amount: i64| {
                slot.resources.insert(name, Expr::from(amount));
            };
            set(name, amount);
            set(&format!("TotalSlot{name}"), amount);
            set(&format!("Total{name}"), resource.total);
            set(&format!("Detected{name}"), resource.total);
        }
    }
    Ok(planned)
}

fn limit(name: &str, found: i64) -> Result<(), PolicyError> {
    if found > MOST_SLOTS {
        return Err(PolicyError::TooManySlots {
            name: name.to_owned(),
            found,
            limit: MOST_SLOTS,
        });
    }
    Ok(())
}

fn resources(reader: &Reader<'_>, detected: &Detected) -> Result<Vec<Resource>, PolicyError> {
    let of = |attribute: &str, total: i64, changes: bool| Resource {
        attribute: attribute.to_owned(),
        total,
        changes,
        devices: vec![],
    };
    let mut resources = vec![
        of(
            "Cpus",
            reader
                .number_if("NUM_CPUS")?
                .filter(|cpus| *cpus > 0)
                .unwrap_or(detected.cpus)
                .max(1),
            false,
        ),
        of(
            "Memory",
            reader
                .number_if("MEMORY")?
                .filter(|memory| *memory > 0)
                .unwrap_or(detected.memory_mib),
            false,
        ),
        of("Disk", detected.disk_kib, true),
        of("VirtualMemory", detected.swap_kib, true),
    ];
    for name in machine_resources(reader) {
        let setting = format!("MACHINE_RESOURCE_{name}");
        let mut inventories = detected.inventories.iter();
        let inventory = inventories.find(|(resource, _)| resource.eq_ignore_ascii_case(&name));
        // A number, or the names of devices; their inventory knows more than their names.
        let found = match (inventory, reader.text(&setting)) {
            (Some((_, ad)), _) => devices::inventory(&name, ad),
            (None, None) => continue,
            (None, Some(text)) => match reader.number_if(&setting) {
                Ok(total) => Err(total.unwrap_or(0)),
                Err(_) if are_names(&text) => Ok(devices::named(&text)),
                Err(error) => return Err(error),
            },
        };
        let mut resource = of(&name, 0, false);
        match found {
            Ok(devices) => {
                resource.total = i64::try_from(devices.len()).unwrap_or(i64::MAX);
                resource.devices = devices;
            }
            Err(total) => resource.total = total,
        }
        limit(
            &setting,
            resource.devices.len().try_into().unwrap_or(i64::MAX),
        )?;
        resources.push(resource);
    }
    Ok(resources)
}

/// Whether a value is a list of names of devices.
fn are_names(text: &str) -> bool {
    let of_a_name = |letter: char| letter.is_ascii_alphanumeric() || "_-.:".contains(letter);
    text.contains(|letter: char| letter.is_ascii_alphabetic())
        && text
            .chars()
            .all(|letter| of_a_name(letter) || " ,\t".contains(letter))
}

/// A configuration as settings: where nothing says which resources there are (`MACHINE_RESOURCE_NAMES`), all that have a
/// `MACHINE_RESOURCE_x` or a `MACHINE_RESOURCE_INVENTORY_x`, as the original looks for them.
pub fn settings_of(config: &Config) -> impl Fn(&str) -> Option<String> + '_ {
    |name| {
        let found = config.get(name);
        let is_said = found.as_ref().is_some_and(|text| !text.trim().is_empty());
        match !is_said && name.eq_ignore_ascii_case("MACHINE_RESOURCE_NAMES") {
            true => Some(resources_of(config).join(" ")),
            false => found,
        }
    }
}

/// The resources of its own that a configuration has settings for.
pub fn resources_of(config: &Config) -> Vec<String> {
    let prefixed = |name: &str, prefix: &str| {
        let (head, tail) = name.split_at_checked(prefix.len())?;
        (head.eq_ignore_ascii_case(prefix) && !tail.is_empty()).then(|| tail.to_owned())
    };
    let mut found: Vec<String> = vec![];
    for name in config.names() {
        let Some(name) = prefixed(name, "MACHINE_RESOURCE_") else {
            continue;
        };
        let name = prefixed(&name, "INVENTORY_").unwrap_or(name);
        let is_known = found.iter().any(|known| known.eq_ignore_ascii_case(&name));
        if !is_known && !name.eq_ignore_ascii_case("NAMES") {
            found.push(name);
        }
    }
    found
}

/// The names of resources of its own, as `MACHINE_RESOURCE_NAMES` has them ([`settings_of`]).
fn machine_resources(reader: &Reader<'_>) -> Vec<String> {
    let mut names = vec![];
    for name in reader.names("MACHINE_RESOURCE_NAMES") {
        if !names
            .iter()
            .any(|known: &String| known.eq_ignore_ascii_case(&name))
        {
            names.push(name);
        }
    }
    names
}

/// The shares of a slot type, resource by resource.
fn shares(setting: &str, text: &str, resources: &[Resource]) -> Result<Vec<Portion>, PolicyError> {
    let mut all = Share::Auto;
    let mut named = vec![];
    let wrong = |part: &str| PolicyError::NotAShare {
        name: setting.to_owned(),
        text: text.to_owned(),
        part: part.to_owned(),
    };
    for part in parts(text) {
        // `GPUs = 1 : Capability >= 8.0`
        let (quantity, constraint) = match part.split_once(':') {
            Some((quantity, constraint)) => (quantity.trim(), Some(constraint.trim())),
            None => (part, None),
        };
        let Some((name, share)) = quantity.split_once('=') else {
            if constraint.is_some() {
                return Err(wrong(part));
            }
            all = share_of(part).ok_or_else(|| wrong(part))?;
            continue;
        };
        let name = name.trim();
        let there = || resources.iter().map(|resource| resource.attribute.clone());
        let index = match resource_called(name, resources) {
            Some(index) => index,
            None if is_name(name) => {
                return Err(PolicyError::NoResource {
                    name: setting.to_owned(),
                    text: text.to_owned(),
                    resource: name.to_owned(),
                    there: there().collect(),
                });
            }
            None => return Err(wrong(part)),
        };
        let share = share_of(share.trim()).ok_or_else(|| wrong(part))?;
        if resources[index].changes && matches!(share, Share::Some(_)) {
            // What changes by itself is shared by parts only.
            return Err(wrong(part));
        }
        let constraint = match constraint {
            None => None,
            // What has no names has nothing to choose from.
            Some(_) if resources[index].devices.is_empty() => return Err(wrong(part)),
            Some(text) => Some(Constraint::parse(text).ok_or_else(|| wrong(part))?),
        };
        named.push((index, Portion { share, constraint }));
    }
    // A whole number for all would be so many of each.
    if let Share::Some(_) = all {
        return Err(wrong(text));
    }
    let all = Portion {
        share: all,
        constraint: None,
    };
    let mut shares = vec![all; resources.len()];
    for (index, portion) in named {
        shares[index] = portion;
    }
    Ok(shares)
}

/// The parts of a value, with commas or line breaks between them; those within quotes, parentheses and the like are the part's own.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let (mut depth, mut quoted, mut escaped) = (0i32, false, false);
    let parts = text.split(move |letter| {
        let is_escaped = std::mem::take(&mut escaped);
        match letter {
            '\\' if quoted => escaped = !is_escaped,
            '"' if !is_escaped => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth <= 0 => return true,
            '\n' => {
                (depth, quoted) = (0, false);
                return true;
            }
            _ => {}
        }
        false
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

/// Whether a resource may be called so.
fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// The first letter tells the four apart that every machine has; others by their name.
fn resource_called(name: &str, resources: &[Resource]) -> Option<usize> {
    let own = resources.iter().skip(4);
    if let Some(found) = own
        .clone()
        .position(|resource| resource.attribute.eq_ignore_ascii_case(name))
    {
        return Some(found + 4);
    }
    match name.chars().next()?.to_ascii_lowercase() {
        'c' => Some(0),
        'm' | 'r' => Some(1),
        'd' => Some(2),
        's' | 'v' => Some(3),
        _ => None,
    }
}

fn share_of(text: &str) -> Option<Share> {
    let part =
        |part: f64| (part.is_finite() && (0.0..=1.0).contains(&part)).then_some(Share::Part(part));
    if text.eq_ignore_ascii_case("auto") {
        return Some(Share::Auto);
    }
    if let Some(percent) = text.strip_suffix('%') {
        return part(percent.trim().parse::<f64>().ok()? / 100.0);
    }
    if let Some((over, under)) = text.split_once('/') {
        let (over, under): (f64, f64) = (over.trim().parse().ok()?, under.trim().parse().ok()?);
        return part(over / under);
    }
    let number: i64 = text.parse().ok()?;
    (number >= 0).then_some(Share::Some(number))
}

/// How much each slot has of a resource; those that are `auto` have the rest, all alike.
fn amounts(resource: &Resource, shares: &[Share]) -> Result<Vec<i64>, PolicyError> {
    let total = resource.total;
    // A slot has one processor at least.
    let least = i64::from(resource.attribute == "Cpus");
    let fixed = |share: &Share| match share {
        Share::Auto => None,
        Share::Some(number) => Some(*number),
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            reason = "cut, as the original does"
        )]
        Share::Part(part) => Some(((total as f64 * part + 1e-9).floor() as i64).max(least)),
    };
    let taken = shares.iter().filter_map(fixed).fold(0, i64::saturating_add);
    let autos = i64::try_from(shares.iter().filter(|share| **share == Share::Auto).count())
        .unwrap_or(i64::MAX);
    let each = match autos {
        0 => 0,
        _ => ((total - taken) / autos).max(least),
    };
    let wanted = taken.saturating_add(each.saturating_mul(autos));
    if wanted > total {
        return Err(PolicyError::TooMuch {
            resource: resource.attribute.clone(),
            wanted: wanted.to_string(),
            there: total.to_string(),
        });
    }
    Ok(shares
        .iter()
        .map(|share| fixed(share).unwrap_or(each))
        .collect())
}
