//! Dates of seconds, and seconds of dates.

/// A date and a time of day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) year: i64,
    /// From 1.
    pub(crate) month: i64,
    /// From 1.
    pub(crate) day: i64,
    pub(crate) hour: i64,
    pub(crate) minute: i64,
    pub(crate) second: i64,
}

/// Days from 1970-01-01 to a day of the Gregorian calendar; months and days may be out of range.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let months = year.saturating_mul(12).saturating_add(month - 1);
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    // Years begin in March, so that the day that comes and goes is their last.
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5;
    let days =
        era.saturating_mul(146_097) + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    days.saturating_add(day - 1)
}

impl Fields {
    /// The date of seconds since 1970.
    pub(crate) fn of(seconds: i64) -> Self {
        let days = seconds.div_euclid(86_400);
        let rest = seconds.rem_euclid(86_400);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * of_year + 2) / 153;
        let month = if shifted_month < 10 {
            shifted_month + 3
        } else {
            shifted_month - 9
        };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: of_year - (153 * shifted_month + 2) / 5 + 1,
            hour: rest / 3600,
            minute: rest / 60 % 60,
            second: rest % 60,
        }
    }

    /// Seconds since 1970; what is out of range is carried over.
    pub(crate) fn seconds(&self) -> i64 {
        let of_day = (self.hour.saturating_mul(3600))
            .saturating_add(self.minute.saturating_mul(60))
            .saturating_add(self.second);
        days_of(self.year, self.month, self.day)
            .saturating_mul(86_400)
            .saturating_add(of_day)
    }

    /// From 0, a Sunday.
    pub(crate) fn day_of_week(&self) -> i64 {
        days_of(self.year, self.month, self.day)
            .saturating_add(4)
            .rem_euclid(7)
    }

    /// From 0.
    pub(crate) fn day_of_year(&self) -> i64 {
        days_of(self.year, self.month, self.day) - days_of(self.year, 1, 1)
    }

    /// The year and the number of its week by ISO 8601.
    pub(crate) fn iso_week(&self) -> (i64, i64) {
        let weekday = (self.day_of_week() + 6) % 7;
        // The week belongs to the year that its Thursday is in.
        let thursday = days_of(self.year, self.month, self.day).saturating_add(3 - weekday);
        let year = Self::of(thursday.saturating_mul(86_400)).year;
        (year, (thursday - days_of(year, 1, 1)) / 7 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn known_dates() {
        let fields = Fields::of(1_000_000_000);
        assert_eq!((fields.year, fields.month, fields.day), (2001, 9, 9));
        assert_eq!((fields.hour, fields.minute, fields.second), (1, 46, 40));
        assert_eq!((fields.day_of_week(), fields.day_of_year()), (0, 251));
        let fields = Fields {
            year: 2001,
            month: 2,
            day: 3,
            ..Fields::default()
        };
        assert_eq!(fields.iso_week(), (2001, 5));
        let fields = Fields {
            year: 2003,
            month: 13,
            day: 45,
            hour: 25,
            minute: 61,
            second: 61,
        };
        assert_eq!(Fields::of(fields.seconds()).year, 2004);
        assert_eq!(Fields::of(-1).year, 1969);
    }

    proptest! {
        #[test]
        fn dates_and_seconds_are_the_same(seconds in -1_000_000_000_000_i64..1_000_000_000_000) {
            prop_assert_eq!(Fields::of(seconds).seconds(), seconds);
        }
    }
}
