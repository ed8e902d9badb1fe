//! Systems of 100 linear equations by Gaussian elimination with partial pivoting, as LINPACK solves them: `KFlops`.

use super::repeat;
use std::hint::black_box;
use std::time::Duration;

const N: usize = 100;

/// Thousand floating point operations a second, rounded.
#[must_use]
pub fn linpack_kflops(at_least: Duration) -> i64 {
    let (matrix, right) = system();
    let (rounds, seconds) = repeat(at_least, || {
        let (mut matrix, mut right) = black_box((matrix.clone(), right));
        solve(&mut matrix, &mut right);
        black_box(right);
    });
    let n = N as f64;
    let operations = 2.0 * n * n * n / 3.0 + 2.0 * n * n;
    (operations * rounds as f64 / seconds / 1000.0).round() as i64
}

/// Columns, as LINPACK keeps them.
type Matrix = Vec<[f64; N]>;

/// A matrix of numbers between -2 and 2 that are always the same, and the sums of its rows: the solution is all ones.
fn system() -> (Matrix, [f64; N]) {
    let mut last = 1325u32;
    let mut next = || {
        last = 3125 * last % 65536;
        (f64::from(last) - 32768.0) / 16384.0
    };
    let matrix: Matrix = (0..N).map(|_| std::array::from_fn(|_| next())).collect();
    let sum_of_row = |row: usize| matrix.iter().map(|column| column[row]).sum();
    let right = std::array::from_fn(sum_of_row);
    (matrix, right)
}

/// Leaves the solution in `right`.
fn solve(matrix: &mut Matrix, right: &mut [f64; N]) {
    for k in 0..N - 1 {
        let size = |row: &usize| matrix[k][*row].abs();
        let pivot = (k..N).max_by(|l, r| size(l).total_cmp(&size(r)));
        let pivot = pivot.unwrap_or(k);
        if matrix[k][pivot] == 0.0 {
            continue;
        }
        let (before, after) = matrix.split_at_mut(k + 1);
        let column = &mut before[k];
        column.swap(k, pivot);
        let factor = -1.0 / column[k];
        column[k + 1..]
            .iter_mut()
            .for_each(|value| *value *= factor);
        for other in after.iter_mut().chain(std::iter::once(&mut *right)) {
            other.swap(k, pivot);
            let times = other[k];
            add(&mut other[k + 1..], times, &column[k + 1..]);
        }
    }
    for k in (0..N).rev() {
        right[k] /= matrix[k][k];
        let times = -right[k];
        add(&mut right[..k], times, &matrix[k][..k]);
    }
}

/// `to += times * column`.
fn add(to: &mut [f64], times: f64, column: &[f64]) {
    for (to, value) in to.iter_mut().zip(column) {
        *to += times * value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equations_are_really_solved() {
        let (mut matrix, mut right) = system();
        solve(&mut matrix, &mut right);
        let worst = right.iter().map(|found| (found - 1.0).abs());
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < 1e-9, "found {worst}");
    }
}
