"""The `kubernetes` target: from plans to manifests, `kubectl`, and what runs in the pods."""
