"""Rules that the fields of a configuration keep together: one module per topic, each public function one rule.

A rule is ``rule(config, world_size)`` and yields a sentence per violation: what must hold, what was given, what to
change.
"""
