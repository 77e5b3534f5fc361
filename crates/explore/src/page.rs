//! What was explored as a page: one file that loads nothing.

use serde_json::{Value, json};

use crate::device::Amounts;
use crate::model::{Errors, Model};
use crate::published::PUBLISHED;
use crate::{Exploration, Point};

const TEMPLATE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

fn amounts(amounts: &Amounts) -> Value {
    json!({ "lut": amounts.lut, "ff": amounts.ff, "bram36": amounts.bram36, "dsp": amounts.dsp })
}

fn point(point: &Point, rank: usize) -> Value {
    let figures = &point.figures;
    let parameters: serde_json::Map<String, Value> = point
        .values
        .iter()
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect();
    let bounds: Vec<Value> = point
        .bounds
        .iter()
        .map(|(what, share)| json!({ "what": what, "share": share }))
        .collect();
    json!({
        "rank": rank,
        "core": point.core,
        "parameters": parameters,
        "latency_cycles": figures.latency,
        "latency_us": point.latency_us,
        "interval_cycles": figures.interval,
        "transforms": figures.transforms,
        "throughput": point.throughput,
        "butterflies": figures.butterflies,
        "words_in": figures.words_in,
        "words_out": figures.words_out,
        "word_bits": figures.word_bits,
        "input_order": figures.orders.0,
        "output_order": figures.orders.1,
        "amounts": amounts(&point.amounts),
        "bandwidth": point.bandwidth,
        "bounds": bounds,
        "front": point.is_on_front,
        "copy": point.is_copy,
        "feasible": point.is_feasible(),
        "command": point.command(),
    })
}

fn errors(errors: &Errors) -> Value {
    json!({ "runs": errors.runs, "median": errors.median, "maximum": errors.maximum })
}

fn model(model: &Model) -> Value {
    let fits = [
        ("lut", &model.lut),
        ("ff", &model.ff),
        ("bram36", &model.bram36),
    ];
    let resources: Vec<Value> = fits
        .into_iter()
        .map(|(name, fit)| {
            let coefficients: Vec<Value> = fit
                .coefficients
                .iter()
                .map(|(part, each)| json!({ "part": part, "each": each }))
                .collect();
            json!({
                "resource": name,
                "coefficients": coefficients,
                "fitted": errors(&fit.fitted),
                "held_out": errors(&fit.held_out),
            })
        })
        .collect();
    json!({
        "core": model.core,
        "technology": model.technology.name(),
        "resources": resources,
        "dsp": errors(&model.dsp),
        "largest_butterflies": model.largest,
        "largest_fitted_butterflies": model.largest_fitted,
    })
}

impl Exploration {
    /// All of it as JSON: `request`, `points` in the order of their ranks, `refused`, `models` and the `published` designs
    /// of this degree.
    pub fn to_json(&self) -> Value {
        let request = &self.request;
        let device = request.device;
        let points = self.points.iter().enumerate();
        let refused = self.refused.iter();
        json!({
            "request": {
                "n": request.transform.n(),
                "q": request.transform.q(),
                // Numbers of JavaScript hold 53 bits.
                "q_text": request.transform.q().to_string(),
                "direction": request.transform.direction,
                "ring": request.transform.ring,
                "input_order": request.transform.input,
                "output_order": request.transform.output,
                "device": {
                    "name": device.name,
                    "title": device.title,
                    "technology": device.technology.name(),
                    "amounts": amounts(&device.amounts),
                    "uram": device.uram,
                    "source": device.source,
                },
                "clock_mhz": request.clock_mhz,
                "clock_assumed": request.is_clock_assumed,
                "bandwidth": request.bandwidth,
                "goal": request.goal,
            },
            "points": points.map(|(i, each)| point(each, i + 1)).collect::<Vec<_>>(),
            "refused": refused
                .map(|(core, reason)| json!({ "core": core, "reason": reason }))
                .collect::<Vec<_>>(),
            "models": self.models.iter().map(|each| model(each)).collect::<Vec<_>>(),
            "published": PUBLISHED
                .iter()
                .filter(|design| design.n == request.transform.n())
                .collect::<Vec<_>>(),
        })
    }

    /// All of it as a page.
    pub fn to_html(&self) -> String {
        // In a script element, `</script` would end it.
        let data = self.to_json().to_string().replace('<', "\\u003c");
        // The data last, so that nothing in them is taken for a mark.
        TEMPLATE
            .replace("@STYLE@", STYLE)
            .replace("@SCRIPT@", SCRIPT)
            .replace("@VERSION@", env!("CARGO_PKG_VERSION"))
            .replace("@DATA@", &data)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Goal, Request, explore};
    use toroid_cores::transform::{Ring, Transform};
    use toroid_ring::goldilocks::P;

    #[test]
    fn the_page_loads_nothing_and_has_the_data() {
        let transform = Transform::new(4096, P, Ring::Negacyclic).unwrap();
        let request = Request::new(transform, "xcu250", None, None, Goal::Latency, None).unwrap();
        let found = explore(request);
        let page = found.to_html();
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("src="));
        for mark in ["@STYLE@", "@SCRIPT@", "@DATA@", "@VERSION@"] {
            assert!(!page.contains(mark), "{mark}");
        }
        let start = page.find("id=\"data\">").unwrap() + 10;
        let end = start + page[start..].find("</script>").unwrap();
        let data: serde_json::Value = serde_json::from_str(&page[start..end]).unwrap();
        assert_eq!(data["points"].as_array().unwrap().len(), found.points.len());
        assert_eq!(data["request"]["q_text"], "18446744069414584321");
        assert!(
            data["published"]
                .as_array()
                .unwrap()
                .iter()
                .any(|design| design["name"] == "HEAX")
        );
    }
}
