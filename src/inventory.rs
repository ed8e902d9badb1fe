//! What the inventories of a configuration say of this machine's resources (`MACHINE_RESOURCE_INVENTORY_x`; current manual, "Configuring GPUs").

use crate::config::Site;
use crate::report::{Exit, Explain, Failure, Outcome};
use classad::config::{Config, Sources};
use classad::{ClassAd, parse_any_ads};
use starter::machine::resources_of;

/// Carries them all out, and reads their ads, by the names of the resources.
///
/// # Errors
/// One cannot be carried out, ends with another status than 0, or prints no ad.
pub(crate) fn taken(config: &Config) -> Outcome<Vec<(String, ClassAd)>> {
    let mut found = vec![];
    for resource in resources_of(config) {
        let setting = format!("MACHINE_RESOURCE_INVENTORY_{resource}");
        let line = config.get(&setting).unwrap_or_default();
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        if words.is_empty() {
            continue;
        }
        let describe = || format!("{setting} = {line}");
        let (printed, status) = Site::new().run(&words).context(describe)?;
        if status != 0 {
            let message = format!("{setting} = {line}: found status {status}, expected 0");
            return Err(Failure::new(Exit::Failed, message));
        }
        let ads = parse_any_ads(&printed).context(describe)?;
        let mut whole = ClassAd::new();
        for (name, expr) in ads.iter().flat_map(ClassAd::iter) {
            whole.insert(name.clone(), std::sync::Arc::clone(expr));
        }
        found.push((resource, whole));
    }
    Ok(found)
}
