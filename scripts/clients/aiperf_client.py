"""What aiperf has measured must be what was asked of the server: aiperf_client.py BASE_URL FOLDER REQUESTS TOKENS."""

import json
import pathlib
import re
import sys
import urllib.request

from check import check, report, same

base, folder, requests, tokens = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
found = json.loads((folder / "profile_export_aiperf.json").read_text())
with urllib.request.urlopen(f"{base}/metrics", timeout=60) as response:
    metrics = response.read().decode()


def average(name):
    check(name in found, f"aiperf has measured {name}", sorted(found))
    return found[name]["avg"]


def counted(series):
    value = re.search(rf"^{re.escape(series)} (\S+)$", metrics, re.MULTILINE)
    check(value, f"the server counts {series}")
    return float(value[1])


check(found["is_complete"] and not found["error_summary"], "no request has failed", found["error_summary"])
same(average("request_count"), requests, "every request was answered")
same(average("output_sequence_length"), tokens, "every answer has its tokens, by the server's count")
same(average("total_usage_completion_tokens"), counted("loopbatch_output_tokens_total"), "both count the same answers")
same(average("total_usage_prompt_tokens"), counted("loopbatch_prompt_tokens_total"), "both count the same prompts")
same(counted('loopbatch_requests_total{outcome="length"}'), requests, "the server has ended each as it was asked to")
for name in ("time_to_first_token", "inter_token_latency", "request_latency", "output_token_throughput"):
    check(average(name) > 0, f"{name} is there")
check(average("time_to_first_token") < average("request_latency"), "a first token comes before the last")
scraped = json.loads((folder / "server_metrics_export.json").read_text())["metrics"]
for name in ("loopbatch_output_tokens", "loopbatch_exit_depth", "loopbatch_time_to_first_token_seconds"):
    check(name in scraped, f"aiperf has read {name} from /metrics", sorted(scraped))
report(f"aiperf {found['aiperf_version']}, {requests} requests of {tokens} tokens")
