"""The only modules that speak Hudi."""
