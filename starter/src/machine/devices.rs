//! Resources of a machine that have names and properties: GPUs, say (current manual, "Configuring GPUs").
//!
//! ```text
//! MACHINE_RESOURCE_GPUs = CUDA0, CUDA1 ──────┐                      constraint of a slot type
//! MACHINE_RESOURCE_INVENTORY_GPUs ── its ad ─┴─> devices ──deal──> slots ──part──> parts of them, as RequireGPUs of the job says
//! ```
//! # What callers may rely on
//! No two slots have the same device; a part has devices of its whole only.

use super::policy::PolicyError;
use classad::{ClassAd, Context, Expr, Literal, Surroundings, Value, parse_expression};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A device, and what is known about it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Device {
    pub(super) id: String,
    pub(super) properties: Arc<ClassAd>,
    /// A part of the slot has it.
    pub(super) is_given: bool,
}

/// The devices of a slot, by resource.
pub(super) type Devices = BTreeMap<String, Vec<Device>>;

/// Which devices a slot wants.
#[derive(Clone, Debug)]
pub(super) struct Constraint {
    text: String,
    expr: Arc<Expr>,
}

/// So many of them, and which.
pub(super) type Wanted<'w> = (i64, Option<&'w Constraint>);

impl Constraint {
    /// What stands behind the colon of a share.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let expr = parse_expression(text).ok()?;
        let (text, expr) = (text.to_owned(), Arc::new(expr));
        Some(Constraint { text, expr })
    }

    /// "If the constraint expression is a string literal, it will be matched automatically against the resource id, otherwise it will be
    /// evaluated against each of the resource property ads."
    fn allows(&self, device: &Device) -> bool {
        if let Expr::Literal(Literal::String(id)) = self.expr.as_ref() {
            return id.to_string().eq_ignore_ascii_case(&device.id);
        }
        let context = Context::new(&classad::Nowhere).with_my(Arc::clone(&device.properties));
        context
            .eval(&self.expr)
            .is_ok_and(|value| value.truth() == Some(true))
    }
}

impl Device {
    fn new(id: &str, mut properties: ClassAd) -> Self {
        if properties.get("Id").is_none() {
            properties.insert("Id", Expr::string(id));
        }
        Device {
            id: id.to_owned(),
            properties: Arc::new(properties),
            is_given: false,
        }
    }

    /// What its properties are called in the slot's ad.
    fn attribute(&self, resource: &str) -> String {
        format!("{resource}_{}", plain(&self.id))
    }
}

/// As attributes may be called: `GPU-6a96bd13` is `GPU_6a96bd13`.
fn plain(id: &str) -> String {
    let letters = id.chars();
    letters
        .map(|letter| {
            if letter.is_ascii_alphanumeric() {
                letter
            } else {
                '_'
            }
        })
        .collect()
}

fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ', '\t', '\n'])
        .filter(|id| !id.is_empty())
}

/// Devices of which only the names are known.
pub(super) fn named(text: &str) -> Vec<Device> {
    ids(text)
        .map(|id| Device::new(id, ClassAd::new()))
        .collect()
}

/// What an inventory says (as `condor_gpu_discovery -nested` does): `DetectedGPUs = "A, B"`, `Common` for what all have, and an ad for each.
/// A number is a resource without names.
pub(super) fn inventory(resource: &str, ad: &ClassAd) -> Result<Vec<Device>, i64> {
    let context = Context::new(&classad::Nowhere).with_my(ad.clone());
    let list = match context.eval_attribute(format!("Detected{resource}").as_str()) {
        Ok(Value::String(list)) => list.to_string(),
        Ok(Value::Integer(number)) => return Err(number),
        _ => return Err(0),
    };
    let nested = |name: &str| match ad.get(name).map(AsRef::as_ref) {
        Some(Expr::Ad(nested)) => Some(ClassAd::clone(nested)),
        _ => None,
    };
    let device = |id: &str| {
        let mut properties = nested("Common").unwrap_or_default();
        if let Some(own) = nested(&plain(id)) {
            for (name, expr) in own.iter() {
                properties.insert(name.clone(), Arc::clone(expr));
            }
        }
        Device::new(id, properties)
    };
    Ok(ids(&list).map(device).collect())
}

/// Gives devices to slots: first to those that say which, in the slots' order.
///
/// # Errors
/// [`PolicyError::TooMuch`]: there are not enough that a constraint allows.
pub(super) fn deal(
    resource: &str,
    devices: &[Device],
    wanted: &[Wanted<'_>],
) -> Result<Vec<Vec<Device>>, PolicyError> {
    let mut left = devices.to_vec();
    let mut dealt = vec![vec![]; wanted.len()];
    for picky in [true, false] {
        for (index, (count, constraint)) in wanted.iter().enumerate() {
            if constraint.is_some() != picky {
                continue;
            }
            for _ in 0..*count {
                let suits = |device: &Device| constraint.is_none_or(|one| one.allows(device));
                let Some(found) = left.iter().position(suits) else {
                    let allowed = devices.iter().filter(|device| suits(device));
                    let such = constraint.map(|one| format!(" with {}", one.text));
                    return Err(PolicyError::TooMuch {
                        resource: format!("{resource}{}", such.unwrap_or_default()),
                        wanted: count.to_string(),
                        there: allowed.count().to_string(),
                    });
                };
                dealt[index].push(left.remove(found));
            }
        }
    }
    Ok(dealt)
}

/// The devices that a job gets of a slot: the first that nobody has and the job wants (`RequireGPUs`). How many there are of them, if not enough.
pub(super) fn part_of(
    resource: &str,
    devices: &[Device],
    count: i64,
    job: &Arc<ClassAd>,
    clock: &dyn Surroundings,
) -> Result<Vec<Device>, i64> {
    let wish = job.get(format!("Require{resource}").as_str());
    let suits = |device: &&Device| {
        let wished = wish.is_none_or(|wish| {
            let context = Context::new(clock)
                .with_my(Arc::clone(&device.properties))
                .with_target(Arc::clone(job));
            context
                .eval(wish)
                .is_ok_and(|value| value.truth() == Some(true))
        });
        wished && !device.is_given
    };
    let count = usize::try_from(count).unwrap_or(0);
    let found: Vec<Device> = devices.iter().filter(suits).take(count).cloned().collect();
    match found.len() < count {
        true => Err(i64::try_from(found.len()).unwrap_or(i64::MAX)),
        false => Ok(found),
    }
}

/// A part has these of them, or gives them back.
pub(super) fn mark(whole: &mut Devices, part: &Devices, is_given: bool) {
    for (resource, devices) in part {
        for device in whole.get_mut(resource).into_iter().flatten() {
            if devices.iter().any(|one| one.id == device.id) {
                device.is_given = is_given;
            }
        }
    }
}

/// Says in a slot's ad which it has: `AssignedGPUs`, `AvailableGPUs`, and the properties of each, `GPUs_CUDA0`.
pub(super) fn publish(devices: &Devices, ad: &mut ClassAd) {
    for (resource, devices) in devices {
        let ids: Vec<&str> = devices.iter().map(|device| device.id.as_str()).collect();
        ad.insert(
            format!("Assigned{resource}"),
            Expr::string(ids.join(",").as_str()),
        );
        let free = devices.iter().filter(|device| !device.is_given);
        let free =
            free.map(|device| Arc::new(Expr::attribute(device.attribute(resource).as_str())));
        ad.insert(format!("Available{resource}"), Expr::List(free.collect()));
        for device in devices {
            let properties = Expr::Ad(Arc::clone(&device.properties));
            ad.insert(device.attribute(resource), properties);
        }
    }
}

/// Takes out of an ad what [`publish`] has said in it.
pub(super) fn withdraw(devices: &Devices, ad: &mut ClassAd) {
    for (resource, devices) in devices {
        for device in devices {
            ad.remove(device.attribute(resource));
        }
    }
}
