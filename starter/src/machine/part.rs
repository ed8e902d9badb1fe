//! Parts of a partitionable slot: how much a job gets (current manual, "Dynamic Provisioning", "Resource Consumption Policies").

use super::Machine;
use super::devices::{self, Devices};
use super::policy::{PolicyError, Reader, Settings, whole};
use super::slot::ask::requested;
use super::slot::{Clock, Kind, Refusal, Slot};
use super::words::{ClaimId, Moment, Order, SlotId};
use classad::{ClassAd, Context, Expr};
use std::sync::Arc;

/// What parts a slot may be divided into.
#[derive(Clone, Debug, Default)]
pub(super) struct Division {
    /// Resource, and the expression that says how much of it a job gets.
    sizes: Vec<(String, Arc<Expr>)>,
    /// Whether the slot asks (`CONSUMPTION_…`), or the job is asked and corrected (`MODIFY_REQUEST_EXPR_…`).
    consumes: bool,
}

/// Why a job gets no part of a slot.
pub(super) enum Lack {
    /// What it asks for, or would be given, is no number.
    NoNumber { name: String, value: String },
    /// There is not enough left.
    TooLittle {
        name: String,
        wanted: i64,
        there: i64,
    },
}

impl Division {
    /// Reads it for slots of a type that have some resources.
    ///
    /// # Errors
    /// [`PolicyError::NotAnExpression`].
    pub(super) fn read(
        settings: &Settings<'_>,
        slot: &Slot,
        slot_type: Option<u32>,
    ) -> Result<Self, PolicyError> {
        let reader = Reader {
            settings,
            dialect: slot.policy.dialect,
            slot_type,
        };
        let consumes = reader.is_true("CONSUMPTION_POLICY");
        let mut sizes = vec![];
        for resource in of(&slot.resources) {
            let upper = resource.to_uppercase();
            let (name, otherwise) = match consumes {
                true => (
                    format!("CONSUMPTION_{upper}"),
                    format!("target.Request{resource}"),
                ),
                false => (
                    format!("MODIFY_REQUEST_EXPR_REQUEST{upper}"),
                    format!("Request{resource}"),
                ),
            };
            let expr = match reader.expression(&name)? {
                Some(expr) => expr,
                // `CONSUMPTION_gpus`: as the resource is written.
                None => match reader.expression(&format!("CONSUMPTION_{resource}"))? {
                    Some(expr) if consumes => expr,
                    _ => reader.parse(&name, &otherwise)?,
                },
            };
            sizes.push((resource, expr));
        }
        Ok(Division { sizes, consumes })
    }

    /// What a job gets of a slot, if there is enough.
    pub(super) fn part(
        &self,
        slot: &Slot,
        job: &Arc<ClassAd>,
        clock: &Clock<'_>,
    ) -> Result<(ClassAd, Devices), Lack> {
        let job = with_requests(job);
        for (resource, _) in &self.sizes {
            if let Err(Refusal::NoNumber { name, value }) =
                requested(&job, resource, slot.ad(), clock)
            {
                return Err(Lack::NoNumber { name, value });
            }
        }
        let mut part = ClassAd::new();
        let mut devices = Devices::new();
        let (my, target) = match self.consumes {
            true => (Arc::clone(slot.ad()), Arc::clone(&job)),
            false => (Arc::clone(&job), Arc::clone(slot.ad())),
        };
        let context = Context::new(clock).with_my(my).with_target(target);
        for (resource, size) in &self.sizes {
            let value = context.eval(size);
            let amount = match value.as_ref().ok().and_then(whole) {
                Some(amount) if amount >= 0 => amount,
                // Who asks for nothing of a resource of the machine's own gets none.
                _ if !matches!(resource.as_str(), "Cpus" | "Memory" | "Disk") => 0,
                _ => {
                    let value = match value {
                        Ok(value) => value.to_string(),
                        Err(error) => error.to_string(),
                    };
                    let name = size.to_string();
                    return Err(Lack::NoNumber { name, value });
                }
            };
            let there = amount_in(&slot.resources, resource);
            if amount > there {
                let name = resource.clone();
                let wanted = amount;
                return Err(Lack::TooLittle {
                    name,
                    wanted,
                    there,
                });
            }
            if let Some(all) = slot.devices.get(resource) {
                let found = devices::part_of(resource, all, amount, &job, clock);
                let found = found.map_err(|there| Lack::TooLittle {
                    name: resource.clone(),
                    wanted: amount,
                    there,
                })?;
                devices.insert(resource.clone(), found);
            }
            part.insert(resource.as_str(), Expr::from(amount));
            part.insert(format!("TotalSlot{resource}"), Expr::from(amount));
        }
        // Swap space goes along with memory.
        let all = amount_in(&slot.resources, "TotalSlotMemory").max(1);
        let swap = amount_in(&slot.resources, "TotalSlotVirtualMemory");
        let memory = amount_in(&part, "Memory");
        let swap =
            i64::try_from(i128::from(swap) * i128::from(memory) / i128::from(all)).unwrap_or(0);
        let swap = swap.min(amount_in(&slot.resources, "VirtualMemory"));
        part.insert("VirtualMemory", Expr::from(swap));
        for (name, expr) in slot.resources.iter() {
            if part.get(name.clone()).is_none() {
                part.insert(name.clone(), Arc::clone(expr));
            }
        }
        Ok((part, devices))
    }
}

/// A job that does not say what it wants, and whose requests nobody has set ([`job_defaults`](super::job_defaults)), gets what `JOB_DEFAULT_REQUEST…`
/// has by itself.
fn with_requests(job: &Arc<ClassAd>) -> Arc<ClassAd> {
    let mut job = Arc::clone(job);
    for (name, otherwise) in [
        ("RequestCpus", "1"),
        (
            "RequestMemory",
            "MemoryUsage ?: ((ImageSize + 1023) / 1024) ?: 1",
        ),
        ("RequestDisk", "DiskUsage ?: 1"),
    ] {
        if job.get(name).is_none()
            && let Ok(expr) = classad::parse_expression(otherwise)
        {
            Arc::make_mut(&mut job).insert(name, expr);
        }
    }
    job
}

/// The resources that are divided by request: all but swap space.
fn of(resources: &ClassAd) -> Vec<String> {
    let names = resources
        .iter()
        .filter_map(|(name, _)| name.text().to_str());
    let all: Vec<&str> = names.collect();
    all.iter()
        .filter(|name| {
            all.contains(&format!("TotalSlot{name}").as_str()) && **name != "VirtualMemory"
        })
        .map(|name| (*name).to_owned())
        .collect()
}

fn amount_in(resources: &ClassAd, name: &str) -> i64 {
    match resources.get(name).map(AsRef::as_ref) {
        Some(Expr::Literal(classad::Literal::Integer(amount))) => *amount,
        _ => 0,
    }
}

/// Takes a part away from a slot, or gives it back.
pub(super) fn move_part(slot: &mut Slot, part: &ClassAd, sign: i64) {
    let mut names = of(&slot.resources);
    names.push("VirtualMemory".to_owned());
    for name in names {
        let left = amount_in(&slot.resources, &name) + sign * amount_in(part, &name);
        slot.resources.insert(name.as_str(), Expr::from(left));
    }
}

impl Machine {
    /// The slot that a claim is for: a new part, where the slot is divided.
    pub(super) fn part_for(
        &mut self,
        id: SlotId,
        claim: ClaimId,
        job: &Arc<ClassAd>,
        now: Moment,
        orders: &mut Vec<Order>,
    ) -> Result<SlotId, ()> {
        let Some(index) = self.slots.iter().position(|slot| slot.id == id) else {
            return Ok(id);
        };
        if self.slots[index].kind != Kind::Partitionable {
            return Ok(id);
        }
        let mut refuse = |reason| {
            let slot = id;
            orders.push(Order::Refused {
                slot,
                claim,
                reason,
            });
            Err(())
        };
        if !self.takes_jobs() {
            return refuse("the machine takes no more jobs");
        }
        let Some(division) = self.divisions.get(&id.number) else {
            return refuse("the slot cannot be divided");
        };
        let mut whole = self.slots[index].clone();
        let world = self.common.world_of(index, &self.slots, now);
        whole.refresh(&world);
        let (part, devices) = match division.part(&whole, job, &world.clock) {
            Ok(part) => part,
            Err(Lack::NoNumber { .. }) => return refuse("the job's request is no number"),
            Err(Lack::TooLittle { .. }) => return refuse("the slot has not enough left"),
        };
        if !whole.suits(job, &world) {
            return refuse("machine and job do not accept each other");
        }
        // The lowest number that is free, so that names are used again.
        let used: Vec<u32> = self.parts_of(id.number).collect();
        let number = (1..)
            .find(|number| !used.contains(number))
            .unwrap_or(u32::MAX);
        let id = SlotId {
            number: id.number,
            part: Some(number),
        };
        move_part(&mut self.slots[index], &part, -1);
        let mut slot = Slot::new(
            id,
            Kind::Dynamic,
            Arc::clone(&self.slots[index].policy),
            part,
            now,
        );
        let mut inherited = whole.ad().as_ref().clone();
        devices::withdraw(&whole.devices, &mut inherited);
        slot.overlay(&inherited);
        devices::mark(&mut self.slots[index].devices, &devices, true);
        slot.devices = devices;
        slot.made_for = Some(Arc::clone(job));
        let after = self
            .slots
            .iter()
            .rposition(|slot| slot.id.number == id.number)
            .unwrap_or(index);
        self.slots.insert(after + 1, slot);
        Ok(id)
    }

    /// What a job asks for and a slot that is divided has not left.
    pub(super) fn lack_of_part(
        &self,
        id: SlotId,
        job: &Arc<ClassAd>,
        now: Moment,
    ) -> Option<Refusal> {
        let slot = self.slot(id)?;
        if slot.kind != Kind::Partitionable {
            return None;
        }
        let clock = self.common.clock(now);
        match self.divisions.get(&id.number)?.part(slot, job, &clock) {
            #[allow(clippy::cast_precision_loss, reason = "processors, MiB, KiB")]
            Err(Lack::TooLittle {
                name,
                wanted,
                there,
            }) => Some(Refusal::Resources {
                name,
                wanted: wanted as f64,
                there: there as f64,
            }),
            Err(Lack::NoNumber { name, value }) => Some(Refusal::NoNumber { name, value }),
            Ok(_) => None,
        }
    }

    fn parts_of(&self, number: u32) -> impl Iterator<Item = u32> {
        let slots = self
            .slots
            .iter()
            .filter(move |slot| slot.id.number == number);
        slots.filter_map(|slot| slot.id.part)
    }

    /// Parts that nobody has go back to the whole.
    pub(super) fn give_back(&mut self, _orders: &mut Vec<Order>) {
        let gone: Vec<usize> = (0..self.slots.len())
            .rev()
            .filter(|index| self.slots[*index].is_gone())
            .collect();
        for index in gone {
            let part = self.slots.remove(index);
            let whole = SlotId::of(part.id.number);
            if let Some(whole) = self.slots.iter_mut().find(|slot| slot.id == whole) {
                move_part(whole, &part.resources, 1);
                devices::mark(&mut whole.devices, &part.devices, false);
            }
        }
    }
}
