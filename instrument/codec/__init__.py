"""Values to protobuf bytes and back; one module a kind, both directions."""
