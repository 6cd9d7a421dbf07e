"""What people see of a sweep: live view, tables, plots, and the same as plain data. Views read, they never write."""
