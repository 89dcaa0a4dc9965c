"""What the checks of compat-tests share: the tools they need, the broker under test, client drivers, the report."""
