//! Ads as JSON: what JSON has no word for is a string `"\/Expr(…)\/"`.

mod read;
mod write;

pub use read::{parse_json_ad, parse_json_ads};
