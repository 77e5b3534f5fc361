//! NVMe commands, completions, status codes and namespaces with metadata.
