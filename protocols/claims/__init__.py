"""Every sentence about who is protected, from whom, by what, and what is not covered: each is written only here.

Pages, terminal output and the text before an approval combine them for their readers. They depend on the study
(`Protection`), so none claims more than its level, unit, view and participation give. The mathematics behind them is in
docs/explanation/mathematics.md, and what attackers can do in docs/explanation/threat-model.md.
"""
