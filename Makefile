# Everything a developer types. Each target makes the .venv it needs first; only test-long uses more
# than this folder and the Python package index.

RUN := .venv/bin/python
# Lineage's Spark session, the pipeline's, and everything else side by side; tests/conftest.py says which is where.
WORKERS := -n 3 --dist loadscope
# The tests of log/ and delivery/, and those of commands and views that are all about them.
COVERING := tests/log tests/delivery $(addprefix tests/cli/test_,backup.py changed_settings.py check.py log.py \
	pipeline_verify.py rejects.py status.py) tests/page/test_home.py tests/pipeline/test_page.py
.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-floors check docs site lock bench bench-sidecar bench-delivery bench-restart bench-many-parts bench-pipeline bench-stream bench-graph bench-page bench-lineage bench-columns oracle-columns crash crash-pipeline crash-stream soak fuzz fuzz-coverage screenshots setup clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## events through outages and kill -9; events that become tables; all of them counted
	@PYTHON='$(PYTHON)' scripts/setup demo
	@$(RUN) -m headwater demo

test: check ## what to run before each push: lint, types, and every test that is not long (six minutes)
	@echo "test: running the tests ..."
	@$(RUN) -m pytest -q -m "not long" $(WORKERS) $(ARGS)

test-long: setup ## the other tests: crashes, brokers, clusters, browsers, other versions; then coverage
	@$(RUN) scripts/fetch_parts.py
	@echo "test-long: running the long tests ..."
	@$(RUN) -m pytest -q -m long $(WORKERS) --ignore=tests/log --ignore=tests/delivery $(ARGS)
	@echo "test-long: all tests of log/ and delivery/, with their branch coverage ..."
	@$(RUN) -m pytest -q $(COVERING) $(WORKERS) --cov=headwater.log --cov=headwater.delivery \
		--cov-report=term:skip-covered --cov-fail-under=95 $(ARGS)

test-floors: setup ## tests of the core, with the lowest versions that pyproject.toml allows
	@$(RUN) scripts/test_floors.py $(ARGS)

check: setup ## lint, types, English, generated docs
	@echo "check: ruff ..."
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@echo "check: mypy --strict ..."
	@$(RUN) -m mypy
	@echo "check: English ..."
	@$(RUN) scripts/english.py
	@echo "check: generated docs are fresh ..."
	@$(RUN) scripts/docs.py --check

docs: setup ## write the generated pages of docs/
	@$(RUN) scripts/docs.py

site: setup ## build the docs site into build/site/html; fails for a broken link
	@$(RUN) scripts/docs_site.py

lock: setup ## write constraints.txt: the newest versions that pyproject.toml allows
	@$(RUN) scripts/lock.py

bench: bench-sidecar bench-delivery bench-restart bench-pipeline bench-graph ## all benchmarks

bench-sidecar: setup ## intake, delivery, memory and start of the sidecar, as ratios
	@$(RUN) -m bench.sidecar

bench-delivery: setup ## keyed delivery against dataset-go, which needs go; one dead session
	@$(RUN) -m bench.delivery

bench-restart: setup ## a million events, half of the keys failing, kill -9: memory, what is sent again
	@$(RUN) -m bench.restart

bench-many-parts: setup ## 300 outlets and 1,000 tokens: threads, memory, time to start and to stop
	@$(RUN) -m bench.many_parts

bench-pipeline: setup ## a million events into DuckDB and Postgres, against dlt and DuckDB's own reader
	@$(RUN) -m bench.pipeline $(ARGS)

bench-graph: setup ## a million lineage events ingested, a graph of 100,000 datasets queried; memory
	@$(RUN) -m bench.graph $(ARGS)

bench-page: setup ## CPU of server and browser: load, trace and drag of graphs, a catalogue of 100,000
	@$(RUN) -m bench.page $(ARGS)

bench-columns: setup ## column lineage of plans of up to 500 steps on 1,000 columns: time and edges
	@$(RUN) -m bench.columns

oracle-columns: setup ## 2,000 random queries, each input changed: no edge may be missing (long)
	@$(RUN) -m pytest -q -s -n 0 --full tests/lineage/test_columns_oracle.py

bench-stream: setup ## stream mode: event to visible row, next to the floor of bare micro-batches
	@$(RUN) -m bench.stream

.PHONY: bench-upstream-events
bench-upstream-events: setup ## events against those that openlineage-spark's tests expect: ARGS="--source CHECKOUT"
	@$(RUN) -m bench.upstream_events $(ARGS)

bench-lineage: setup ## what lineage costs Spark jobs, next to openlineage-spark's jar, which needs mvn (long)
	@$(RUN) -m bench.lineage

crash: setup ## 200 cycles of kill -9 and count (long)
	@$(RUN) -m tests.chaos.crash $(ARGS)

crash-pipeline: setup ## 50 cycles of kill -9 of the pipeline while events come in (long)
	@$(RUN) -m tests.chaos.crash_pipeline $(ARGS)

crash-stream: setup ## 30 kills of drivers, workers and destinations of streams, 200,000 events (long)
	@$(RUN) -m tests.chaos.crash_stream $(ARGS)

soak: setup ## ten minutes of load while everything dies now and then; counted, and drawn (long)
	@$(RUN) -m tests.chaos.soak --plot soak.svg $(ARGS)

fuzz: setup ## 100,000 hostile requests against a running sidecar: no 5xx, no hang, no growth
	@$(RUN) -m tests.gateway.volley --count 100000 --seed 1 $(ARGS)

fuzz-coverage: setup ## readers of bytes from outside, each searched under coverage guidance; SECONDS=60 each
	@for target in $(or $(TARGET),http_connection body_decoders validator event_file_lines partition_reader); do \
		$(RUN) -m tests.fuzz.coverage $$target --seconds $(or $(SECONDS),60) --corpus .fuzz/$$target || exit 1; done

screenshots: setup ## the pictures of docs/img, and each view at each width in build/screenshots; needs a Chromium
	@HEADWATER_SCREENSHOTS=docs/img HEADWATER_SCREENSHOT_MATRIX=build/screenshots $(RUN) -m pytest -q tests/page/browser/test_screenshots.py

setup:
	@PYTHON='$(PYTHON)' scripts/setup dev

clean: ## remove .venv and caches
	rm -rf .fuzz .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
