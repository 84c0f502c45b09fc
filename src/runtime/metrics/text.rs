//! Pure: the text format of series, with bucket bounds spelled as in the Go program. A bound is the value of a label.
//! With another spelling (`0.00000001` for `1e-08`), queries over the series of both programs return two buckets
//! instead of one.

use std::borrow::Cow;
use std::fmt::{self, Write};

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

/// Formats all series in the given order. Fails for an unused type: a summary, or a family without type.
pub(super) fn encode(families: &[MetricFamily]) -> Result<String, prometheus::Error> {
    let mut text = String::new();
    for family in families {
        let kind = match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::GAUGE => "gauge",
            MetricType::HISTOGRAM => "histogram",
            other => return Err(prometheus::Error::Msg(format!("{}: cannot write {other:?}", family.name()))),
        };
        write_family(&mut text, family, kind).map_err(|error| prometheus::Error::Msg(error.to_string()))?;
    }
    Ok(text)
}

fn write_family(text: &mut String, family: &MetricFamily, kind: &str) -> fmt::Result {
    let name = family.name();
    writeln!(text, "# HELP {name} {}", escaped(family.help(), false))?;
    writeln!(text, "# TYPE {name} {kind}")?;
    for metric in family.get_metric() {
        match kind {
            "counter" => write_sample(text, (name, ""), metric, None, metric.get_counter().get_value())?,
            "gauge" => write_sample(text, (name, ""), metric, None, metric.get_gauge().get_value())?,
            _ => write_histogram(text, name, metric)?,
        }
    }
    Ok(())
}

fn write_histogram(text: &mut String, name: &str, metric: &Metric) -> fmt::Result {
    let histogram = metric.get_histogram();
    // Counts stay far below the integers that an `f64` cannot represent exactly.
    let count = histogram.get_sample_count() as f64;
    for bucket in histogram.get_bucket() {
        let bound = go_float(bucket.upper_bound());
        write_sample(text, (name, "_bucket"), metric, Some(&bound), bucket.cumulative_count() as f64)?;
    }
    write_sample(text, (name, "_bucket"), metric, Some("+Inf"), count)?;
    write_sample(text, (name, "_sum"), metric, None, histogram.get_sample_sum())?;
    write_sample(text, (name, "_count"), metric, None, count)
}

fn write_sample(
    text: &mut String,
    (name, suffix): (&str, &str),
    metric: &Metric,
    bound: Option<&str>,
    value: f64,
) -> fmt::Result {
    write!(text, "{name}{suffix}")?;
    let pairs = metric.get_label().iter().map(|pair: &LabelPair| (pair.name(), pair.value()));
    let mut before = '{';
    for (label, value) in pairs.chain(bound.map(|bound| ("le", bound))) {
        write!(text, "{before}{label}=\"{}\"", escaped(value, true))?;
        before = ',';
    }
    if before == ',' {
        text.push('}');
    }
    match value {
        value if value == f64::INFINITY => writeln!(text, " +Inf"),
        value if value == f64::NEG_INFINITY => writeln!(text, " -Inf"),
        value => writeln!(text, " {value}"),
    }
}

/// Escapes backslashes and line breaks, and in labels also quotes.
fn escaped(text: &str, is_label: bool) -> Cow<'_, str> {
    if !text.contains(['\\', '\n', '"']) {
        return text.into();
    }
    let text = text.replace('\\', "\\\\").replace('\n', "\\n");
    if is_label { text.replace('"', "\\\"").into() } else { text.into() }
}

/// Formats a finite number as Go's shortest `%g` does: with an exponent below 0.0001 and from 1,000,000 on.
fn go_float(number: f64) -> String {
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ => format!("{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::core::Collector;
    use prometheus::{Gauge, GaugeVec, HistogramOpts, HistogramVec, Opts};

    #[test]
    fn bounds_are_spelt_as_in_go() {
        for (number, expected) in [
            (1e-8, "1e-08"),
            (9.999_999_999_999_999e-6, "9.999999999999999e-06"),
            (0.0001, "0.0001"),
            (0.005, "0.005"),
            (0.25, "0.25"),
            (1.0, "1"),
            (1024.0, "1024"),
            (262_144.0, "262144"),
            (1_048_576.0, "1.048576e+06"),
            (16_777_216.0, "1.6777216e+07"),
            (1e100, "1e+100"),
            (0.0, "0"),
        ] {
            assert_eq!(go_float(number), expected);
        }
    }

    #[test]
    fn an_exposition_is_written() {
        let gauge = GaugeVec::new(Opts::new("odd", "A \\ and\na \"quote\"."), &["a", "b"]).unwrap();
        gauge.with_label_values(&["x\\\"\n", ""]).set(f64::NEG_INFINITY);
        let plain = Gauge::new("plain", "Plain.").unwrap();
        plain.set(1.5);
        let options = HistogramOpts::new("took_seconds", "Time.").buckets(vec![1e-8, 2.0]);
        let took = HistogramVec::new(options, &["verb"]).unwrap();
        took.with_label_values(&["GET"]).observe(1.0);
        let families: Vec<_> = [gauge.collect(), plain.collect(), took.collect()].concat();
        let expected = "# HELP odd A \\\\ and\\na \"quote\".\n\
                        # TYPE odd gauge\n\
                        odd{a=\"x\\\\\\\"\\n\",b=\"\"} -Inf\n\
                        # HELP plain Plain.\n\
                        # TYPE plain gauge\n\
                        plain 1.5\n\
                        # HELP took_seconds Time.\n\
                        # TYPE took_seconds histogram\n\
                        took_seconds_bucket{verb=\"GET\",le=\"1e-08\"} 0\n\
                        took_seconds_bucket{verb=\"GET\",le=\"2\"} 1\n\
                        took_seconds_bucket{verb=\"GET\",le=\"+Inf\"} 1\n\
                        took_seconds_sum{verb=\"GET\"} 1\n\
                        took_seconds_count{verb=\"GET\"} 1\n";
        assert_eq!(encode(&families).unwrap(), expected);
    }
}
