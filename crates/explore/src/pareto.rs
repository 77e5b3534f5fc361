//! Pareto fronts.

/// Whether `a` is nowhere worse than `b`, and somewhere better; smaller is better.
fn dominates<const D: usize>(a: &[f64; D], b: &[f64; D]) -> bool {
    a.iter().zip(b).all(|(a, b)| a <= b) && a != b
}

/// Of each point whether no other dominates it; smaller is better in every coordinate. Of equal points all are on the front.
pub fn front<const D: usize>(points: &[[f64; D]]) -> Vec<bool> {
    points
        .iter()
        .map(|point| !points.iter().any(|other| dominates(other, point)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_worse_in_all_or_equal_and_worse_is_off_the_front() {
        let points = [[1.0, 4.0], [2.0, 2.0], [4.0, 1.0], [2.0, 3.0], [5.0, 5.0]];
        assert_eq!(front(&points), [true, true, true, false, false]);
        assert_eq!(front(&[[1.0], [1.0], [2.0]]), [true, true, false]);
        assert_eq!(front::<2>(&[]), [] as [bool; 0]);
    }

    proptest! {
        #[test]
        fn the_front_dominates_the_rest_and_not_itself(points in prop::collection::vec([0u8..6, 0u8..6, 0u8..6], 1..40)) {
            let points: Vec<[f64; 3]> = points.iter().map(|point| point.map(f64::from)).collect();
            let on = front(&points);
            for (i, point) in points.iter().enumerate() {
                let better = points.iter().zip(&on).any(|(other, on)| *on && dominates(other, point));
                prop_assert_eq!(better, !on[i]);
            }
        }
    }
}
