"""The only modules that use Hudi."""
