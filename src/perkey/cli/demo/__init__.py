"""The demo: worker processes that write one report, with perkey and without."""
