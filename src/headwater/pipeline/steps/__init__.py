"""The steps that turn events into rows, and what they share; start reading at `pipeline.load`.

1 route   read_lines, route, template        6 patch   fit_table
2 parse   parse_events, field_tree           7 stage   project, convert, stage
3 enrich  enrich/                            8 load    destinations/
4 map     mapping                            9 record  batch/file_in_cycle, stream/range_load
5 type    batch_schema
"""
