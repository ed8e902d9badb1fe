//! A policy's day as a picture: keys and load above, a band for each slot below.

use plotters::prelude::*;
use starter::machine::{Activity, Moment, Place, SlotId, State};
use starter::simulate::{Keys, Report, Trace};
use std::collections::BTreeMap;
use std::error::Error;

const WIDTH: u32 = 1200;
const TOP: u32 = 200;
const BAND: u32 = 48;
const LEGEND: u32 = 96;

/// The picture, as SVG.
pub(super) fn draw(report: &Report, trace: &Trace) -> Result<String, Box<dyn Error + Send + Sync>> {
    let bands = bands(report);
    let mut svg = String::new();
    let rows = u32::try_from(bands.len()).unwrap_or(u32::MAX).clamp(1, 64);
    let height = TOP + BAND * rows + 60 + LEGEND;
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        fault(root.fill(&WHITE))?;
        let (above, rest) = root.split_vertically(TOP);
        let (below, legend) = rest.split_vertically(BAND * rows + 60);
        owner(&above, report, trace)?;
        slots(&below, report, &bands)?;
        names(&legend, &bands)?;
        fault(root.present())?;
    }
    Ok(svg)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn Error + Send + Sync>>;

/// The backend's errors are not for other threads.
fn fault<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, Box<dyn Error + Send + Sync>> {
    result.map_err(|error| error.to_string().into())
}

#[allow(clippy::cast_precision_loss, reason = "seconds of days")]
fn hours(report: &Report, at: Moment) -> f64 {
    (at - report.began) as f64 / 3600.0
}

fn end(report: &Report) -> f64 {
    hours(report, report.ended).max(1e-3)
}

/// What the owner does: his load, and when he types.
fn owner(area: &Area<'_>, report: &Report, trace: &Trace) -> Drawn {
    let mut loads = vec![(0.0, 0.0)];
    let mut load = 0.0;
    for row in trace.rows.iter().filter(|row| row.at <= report.ended) {
        if let Some(now) = row.load {
            let at = hours(report, row.at);
            loads.extend([(at, load), (at, now)]);
            load = now;
        }
    }
    loads.push((end(report), load));
    let most = loads.iter().map(|(_, load)| *load).fold(1.0, f64::max) * 1.1;
    let mut chart = fault(
        ChartBuilder::on(area)
            .caption(
                format!(
                    "from {}: load of the owner, and when he types",
                    starter::simulate::civil(report.began)
                ),
                ("sans-serif", 16),
            )
            .margin(8)
            .x_label_area_size(24)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..end(report), 0.0..most),
    )?;
    fault(chart.configure_mesh().disable_mesh().x_labels(25).draw())?;
    let mut since = None;
    let mut typed = vec![];
    for row in trace.rows.iter().filter(|row| row.at <= report.ended) {
        let at = hours(report, row.at);
        match (row.keyboard, since) {
            (Some(Keys::Busy), None) => since = Some(at),
            (Some(Keys::Idle(_)), Some(from)) => {
                typed.push((from, at));
                since = None;
            }
            (Some(Keys::Idle(0)), None) => typed.push((at, at)),
            _ => {}
        }
    }
    typed.extend(since.map(|from| (from, end(report))));
    let thin = end(report) / 1000.0;
    fault(chart.draw_series(typed.into_iter().map(|(from, to)| {
        Rectangle::new(
            [(from, 0.0), (to.max(from + thin), most)],
            RGBColor(255, 224, 160).filled(),
        )
    })))?;
    fault(chart.draw_series(std::iter::once(PathElement::new(
        loads,
        BLACK.stroke_width(1),
    ))))?;
    Ok(())
}

/// Where each slot was, and from when to when.
type Bands = BTreeMap<SlotId, Vec<(Moment, Moment, Place)>>;

fn bands(report: &Report) -> Bands {
    let mut bands = Bands::new();
    let mut last: BTreeMap<SlotId, (Moment, Place)> = BTreeMap::new();
    for change in report.changes() {
        let (since, _) = last.get(&change.slot).copied().unwrap_or((
            match change.slot.part {
                None => report.began,
                Some(_) => change.at,
            },
            change.from,
        ));
        bands
            .entry(change.slot)
            .or_default()
            .push((since, change.at, change.from));
        last.insert(change.slot, (change.at, change.to));
    }
    for (slot, (since, place)) in last {
        // A part that is its owner's, or free, was given back.
        let is_there =
            slot.part.is_none() || !matches!(place.state, State::Owner | State::Unclaimed);
        if is_there {
            bands
                .entry(slot)
                .or_default()
                .push((since, report.ended, place));
        }
    }
    bands
}

fn color(place: Place) -> RGBColor {
    use Activity as A;
    match (place.state, place.activity) {
        (State::Owner, _) => RGBColor(200, 200, 200),
        (State::Unclaimed, A::Benchmarking) => RGBColor(214, 206, 240),
        (State::Unclaimed, _) => RGBColor(235, 240, 245),
        (State::Matched, _) => RGBColor(180, 210, 240),
        (State::Claimed, A::Busy) => RGBColor(60, 160, 75),
        (State::Claimed, A::Suspended) => RGBColor(245, 205, 60),
        (State::Claimed, A::Retiring) => RGBColor(150, 200, 90),
        (State::Claimed, _) => RGBColor(120, 170, 230),
        (State::Preempting, A::Killing) => RGBColor(210, 40, 40),
        (State::Preempting, _) => RGBColor(240, 140, 40),
        (State::Backfill, _) => RGBColor(140, 110, 200),
        (State::Drained, _) => RGBColor(110, 110, 110),
    }
}

#[allow(clippy::cast_precision_loss, reason = "a few slots")]
fn slots(area: &Area<'_>, report: &Report, bands: &Bands) -> Drawn {
    let most = bands.len().max(1) as f64;
    let ids: Vec<SlotId> = bands.keys().copied().collect();
    let name = |at: &f64| {
        // A label stands in the middle of its band.
        let index = (most - at).floor();
        let is_middle = (at.fract() - 0.5).abs() < 1e-6;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an index"
        )]
        let id = ids.get(index.max(0.0) as usize).filter(|_| is_middle);
        match id {
            Some(SlotId {
                number,
                part: Some(part),
            }) => format!("slot {number}_{part}"),
            Some(SlotId { number, part: None }) => format!("slot {number}"),
            None => String::new(),
        }
    };
    let mut chart = fault(
        ChartBuilder::on(area)
            .margin(8)
            .x_label_area_size(40)
            .y_label_area_size(72)
            .build_cartesian_2d(0.0..end(report), 0.0..most),
    )?;
    fault(
        chart
            .configure_mesh()
            .disable_mesh()
            .x_labels(25)
            .x_desc("hours")
            .y_labels(2 * bands.len() + 1)
            .y_label_formatter(&name)
            .draw(),
    )?;
    for (row, band) in bands.values().enumerate() {
        let (top, bottom) = (most - row as f64 - 0.1, most - row as f64 - 0.9);
        fault(
            chart.draw_series(band.iter().filter(|(from, to, _)| from < to).map(
                |(from, to, place)| {
                    let (from, to) = (hours(report, *from), hours(report, *to));
                    Rectangle::new([(from, bottom), (to, top)], color(*place).filled())
                },
            )),
        )?;
    }
    Ok(())
}

/// What the colours mean.
fn names(area: &Area<'_>, bands: &Bands) -> Drawn {
    let mut places: Vec<Place> = bands
        .values()
        .flatten()
        .map(|(_, _, place)| *place)
        .collect();
    places.sort();
    places.dedup();
    for (place, index) in places.into_iter().zip(0_i32..) {
        let (x, y) = (80 + index % 6 * 180, 8 + index / 6 * 24);
        fault(area.draw(&Rectangle::new(
            [(x, y), (x + 14, y + 14)],
            color(place).filled(),
        )))?;
        let style = ("sans-serif", 14).into_font().color(&BLACK);
        fault(area.draw(&Text::new(place.to_string(), (x + 20, y + 1), style)))?;
    }
    Ok(())
}
