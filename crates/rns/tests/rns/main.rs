//! The ring layer against plain oracles: schoolbook polynomials and whole integers.

#![allow(clippy::unwrap_used)]

mod division;
mod noise;
mod oracle;
mod poly;
mod scheme;
