"""Pipeline schedules as data: builders write the computes, passes add the messages, prove, time and draw the result.

``plan.plan`` is the way in; everything here is plain Python without torch. A schedule's builder is one file of
``builders/``.
"""
