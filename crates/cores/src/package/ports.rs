//! The ports of a made core: streams and memory under the names of AXI4, which vendors' tools know, around the names of `hw/`.

use minijinja::context;
use minijinja::value::Value as Variable;

use crate::ports::{MemoryPorts, Ports, StreamPorts};

/// A port of the module that is made.
struct Port {
    direction: &'static str,
    bits: u32,
    name: String,
}

/// The ports of a made core, and what they are connected to.
#[derive(Default)]
pub(super) struct Border {
    ports: Vec<Port>,
    /// Ports of the core, and the expressions of the made module's ports at them.
    connections: Vec<(String, String)>,
    /// Ports that always have one value.
    constants: Vec<(String, String)>,
    /// Ports that the core does not look at.
    unused: Vec<String>,
}

/// What a stream of the core is called outside: after its direction, and its name if it is not the only one.
pub(super) fn axis(name: &str, is_input: bool) -> String {
    match (name, is_input) {
        ("in", _) => "s_axis".to_owned(),
        ("out", _) => "m_axis".to_owned(),
        (name, true) => format!("s_axis_{name}"),
        (name, false) => format!("m_axis_{name}"),
    }
}

const BOTH: [&str; 2] = ["input", "output"];

impl Border {
    /// `words` are those of the core's header: its ports have a suffix or none, and streams leave some out.
    pub(super) fn new(ports: &Ports, words: &[&str]) -> Border {
        let mut border = Border::default();
        match ports {
            Ports::Pipeline { inputs, outputs } => {
                border.join(0, 1, "clk_i", "clk_i");
                for (direction, fields) in [inputs, outputs].into_iter().enumerate() {
                    for field in fields {
                        border.join(direction, field.bits, field.name, field.name);
                    }
                }
            }
            Ports::Streams { streams, memory } => {
                border.join(0, 1, "aclk", "clk_i");
                border.join(0, 1, "aresetn", "rst_ni");
                for stream in streams {
                    border.stream(stream, words);
                }
                if let Some(memory) = memory {
                    border.memory(memory);
                }
                if words.contains(&"error_o") {
                    border.join(1, 1, "error", "error_o");
                }
            }
        }
        border
    }

    fn port(&mut self, direction: usize, bits: u32, name: &str) {
        self.ports.push(Port {
            direction: BOTH[direction],
            bits,
            name: name.to_owned(),
        });
    }

    fn join(&mut self, direction: usize, bits: u32, name: &str, inner: &str) {
        self.port(direction, bits, name);
        self.connections.push((inner.to_owned(), name.to_owned()));
    }

    fn stream(&mut self, stream: &StreamPorts, words: &[&str]) {
        let outer = axis(stream.name, stream.is_input);
        let signals = [
            ("tvalid", 1, false),
            ("tready", 1, true),
            ("tdata", stream.data_bits, false),
            ("tuser", stream.user_bits.max(1), false),
            ("tlast", 1, false),
        ];
        for (signal, bits, is_against) in signals {
            let direction = usize::from(stream.is_input == is_against);
            let plain = format!("{}_{signal}", stream.name);
            let full = format!("{plain}{}", ["_i", "_o"][direction]);
            let mut inner = [full, plain].into_iter();
            if let Some(inner) = inner.find(|port| words.contains(&port.as_str())) {
                self.join(direction, bits, &format!("{outer}_{signal}"), &inner);
            }
        }
    }

    /// Every port with the signals that the core's kind of AXI4 fixes or does not look at.
    fn memory(&mut self, memory: &MemoryPorts) {
        let data = memory.data_bits;
        let bytes = data / 8;
        // Each with what is constant, in place of what the core has.
        let size = format!("3'd{}", bytes.ilog2());
        let (incr, all) = ("2'b01".to_owned(), "'1".to_owned());
        let signals = [
            ("arvalid", 1, 1, None),
            ("arready", 0, 1, None),
            ("araddr", 1, memory.address_bits, None),
            ("arlen", 1, 8, None),
            ("arsize", 1, 3, Some(size.clone())),
            ("arburst", 1, 2, Some(incr.clone())),
            ("rvalid", 0, 1, None),
            ("rready", 1, 1, None),
            ("rdata", 0, data, None),
            ("awvalid", 1, 1, None),
            ("awready", 0, 1, None),
            ("awaddr", 1, memory.address_bits, None),
            ("awlen", 1, 8, None),
            ("awsize", 1, 3, Some(size)),
            ("awburst", 1, 2, Some(incr)),
            ("wvalid", 1, 1, None),
            ("wready", 0, 1, None),
            ("wdata", 1, data, None),
            ("wstrb", 1, bytes, Some(all)),
            ("wlast", 1, 1, None),
            ("bvalid", 0, 1, None),
            ("bready", 1, 1, None),
        ];
        let of_port = |number, signal: &str| format!("m{number:02}_axi_{signal}");
        for number in 0..memory.count {
            for (signal, direction, bits, constant) in &signals {
                let name = of_port(number, signal);
                self.port(*direction, *bits, &name);
                if let Some(constant) = constant {
                    self.constants.push((name, constant.clone()));
                }
            }
            for (signal, bits) in [("rresp", 2), ("rlast", 1), ("bresp", 2)] {
                let name = of_port(number, signal);
                self.port(0, bits, &name);
                self.unused.push(name);
            }
        }
        for (signal, direction, _, _) in signals.iter().filter(|signal| signal.3.is_none()) {
            let all: Vec<String> = (0..memory.count)
                .rev()
                .map(|number| of_port(number, signal))
                .collect();
            let inner = format!("m_axi_{signal}{}", ["_i", "_o"][*direction]);
            self.connections
                .push((inner, format!("{{{}}}", all.join(", "))));
        }
    }

    /// What templates know of it.
    pub(super) fn context(&self) -> Variable {
        let ports = self.ports.iter().map(|port| {
            let range = match port.bits {
                1 => String::new(),
                bits => format!("[{}:0] ", bits - 1),
            };
            context! { direction => port.direction, range, name => &port.name }
        });
        let pairs = |pairs: &[(String, String)]| -> Variable {
            let pairs = pairs.iter();
            pairs
                .map(|(name, value)| context! { name, value })
                .collect()
        };
        context! {
            ports => ports.collect::<Variable>(),
            connections => pairs(&self.connections),
            constants => pairs(&self.constants),
            unused => self.unused.clone(),
        }
    }
}
