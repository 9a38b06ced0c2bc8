"""The student on test records, group by group: accuracy, calibration, and what privacy costs each group."""
