"""kedge report from outside: files written, mistakes in run folders. The page itself is test_report_page.py's."""
import json
import os
import shutil
import unittest
import xml.etree.ElementTree as ElementTree

from kedge_cli import KEDGE, KedgeTest
from run_folder import grid, write_run

SMALL = dict(policies=("none", "andpro", "random"), budgets=("25%",), lengths=(512, 1024), depths=(0, 1), samples=1,
             windows=2)


class ReportTest(KedgeTest):
    @classmethod
    def setUpClass(cls):  # no model is needed
        if not os.path.exists(KEDGE):
            raise AssertionError(f"KEDGE={KEDGE} is not there: build first")

    def run_folder(self, name="run", **change):
        folder = self.path(name)
        write_run(folder, grid(**(SMALL | change)))
        return folder

    def report(self, *args):
        return self.kedge("report", *args, "-o", self.path("out.html"))

    def edit(self, folder, name, change):
        """change: from the file's text to another."""
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8", newline="") as f:
            text = f.read()
        with open(path, "w", encoding="utf-8", newline="") as f:
            f.write(change(text))

    def edit_json(self, folder, name, change):
        def changed(text):
            value = json.loads(text)
            change(value)
            return json.dumps(value)
        self.edit(folder, name, changed)


class Written(ReportTest):
    def test_page_and_figures(self):
        result = self.report(self.run_folder(), "--figures", self.path("figures"))
        self.assertEqual((result.code, result.out), (0, ""), result)
        names = sorted(os.listdir(self.path("figures")))
        self.assertEqual([n for n in names if n.startswith(("heatmap", "memory", "time"))],
                         ["heatmap-needle-25pct.svg", "memory-kld-25pct.svg", "memory-needle-25pct.svg",
                          "time-run.svg"])
        for name in names:
            root = ElementTree.parse(os.path.join(self.path("figures"), name)).getroot()
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg", name)
            texts = ["".join(t.itertext()) for t in root.iter("{http://www.w3.org/2000/svg}text")]
            self.assertGreater(len(texts), 5, name)
        self.assertEqual([n for n in os.listdir(self.folder) if "tmp" in n], [])

    def test_the_same_input_gives_the_same_page(self):
        folder = self.run_folder()
        pages = []
        for _ in range(2):
            self.assertEqual(self.report(folder).code, 0)
            with open(self.path("out.html"), "rb") as f:
                pages.append(f.read())
        self.assertEqual(pages[0], pages[1])

    def test_missing_optional_files_leave_a_sentence(self):
        folder = self.run_folder()
        for name in ("timings.json", "journal.jsonl", "environment.json"):
            os.remove(os.path.join(folder, name))
        self.assertEqual(self.report(folder).code, 0)
        with open(self.path("out.html"), encoding="utf-8") as f:
            page = f.read()
        for sentence in ("The figure needs timings.json", "How memory went over time was not recorded",
                         "Who got the rows was not recorded"):
            self.assertIn(sentence, page)
        self.assertIn("heatmap-needle-25pct", page)

    def test_a_torn_last_line_of_the_journal_is_left_out(self):
        folder = self.run_folder()
        self.edit(folder, "journal.jsonl", lambda text: text + '{"cell": "needle|x')
        self.assertEqual(self.report(folder).code, 0)


class Mistakes(ReportTest):
    def test_usage(self):
        self.assert_error(self.kedge("report"), 2, "which run")
        folder = self.run_folder()
        self.assert_error(self.report(folder, folder + "/"), 2, "twice")
        self.assert_error(self.report(folder, "--figure", "x"), 2, "--figures")

    def test_folders(self):
        self.assert_error(self.report(self.path("nowhere")), 1, "nowhere", "no folder")
        for name in ("config.json", "predictions.csv", "metrics.json"):
            folder = self.run_folder(name.split(".")[0])
            os.remove(os.path.join(folder, name))
            self.assert_error(self.report(folder), 1, folder, name)
        self.assert_error(self.kedge("report", self.run_folder("ok"), "-o", "/nowhere/x.html"), 1, "/nowhere/x.html")

    def test_damage_names_file_and_place(self):
        def set_in(*path, value):
            def change(document):
                for key in path[:-1]:
                    document = document[key]
                document[path[-1]] = value
            return lambda text: json.dumps([d := json.loads(text), change(d)][0])

        cases = {
            "no json": ("config.json", lambda t: t[:-20], ["config.json", "line"]),
            "schema": ("config.json", set_in("schema", value="kedge-eval-9"), ["config.json", "schema", "kedge-eval-9",
                                                                               "kedge-eval-1"]),
            "metrics schema": ("metrics.json", set_in("schema", value=None), ["metrics.json", "schema"]),
            "type": ("config.json", set_in("budgets", value=5), ["config.json", "budgets", "list"]),
            "policy entry": ("config.json", set_in("policies", 1, "name", value=3),
                             ["config.json", "policies[1].name"]),
            "group": ("metrics.json", set_in("groups", 2, "score", value="high"), ["metrics.json", "groups[2].score"]),
            "group policy": ("metrics.json", set_in("groups", 1, "policy", value="evil"), ["groups[1].policy", "evil"]),
            "not an object": ("metrics.json", lambda t: "[1, 2]", ["metrics.json", "schema"]),
            "csv policy": ("predictions.csv", lambda t: t.replace(",random,", ",evil,", 1),
                           ["predictions.csv:", "evil"]),
            "csv number": ("predictions.csv", lambda t: t.replace(",contains,", ",contains,x", 1),
                           ["predictions.csv:2", "score"]),
            "csv fields": ("predictions.csv", lambda t: t + "needle,x\n", ["predictions.csv:", "2 fields"]),
            "csv header": ("predictions.csv", lambda t: t.replace("policy", "polity", 1),
                           ["predictions.csv:1", "policy"]),
            "csv empty": ("predictions.csv", lambda t: "", ["predictions.csv:1"]),
            "csv quote": ("predictions.csv", lambda t: t + '"', ["predictions.csv:", "quote"]),
            "journal": ("journal.jsonl", lambda t: t.replace("{", "{{", 1), ["journal.jsonl:1", "JSON"]),
            "journal rows": ("journal.jsonl", lambda t: t.replace("[[", "[[[", 1).replace("]]", "]]]", 1),
                             ["journal.jsonl:1", "rows_per_head"]),
            "journal cell": ("journal.jsonl", lambda t: t.replace("|andpro|", "|evil|", 1), ["journal.jsonl:", "evil"]),
            "timings": ("timings.json", set_in("groups", 0, "prefill_s", value=[]), ["timings.json",
                                                                                     "groups[0].prefill_s"]),
        }
        whole = self.run_folder("whole")
        for name, (file, change, words) in cases.items():
            with self.subTest(name):
                folder = self.path("damaged")
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(whole, folder)
                self.edit(folder, file, change)
                self.assert_error(self.report(folder), 1, *words)
                self.assertFalse(os.path.exists(self.path("out.html")))

    def test_any_cut_is_an_error_or_a_page(self):
        """No byte at which a file ends brings the program down."""
        whole = self.run_folder("whole")
        for file in ("config.json", "metrics.json", "predictions.csv", "journal.jsonl", "timings.json"):
            size = os.path.getsize(os.path.join(whole, file))
            for cut in range(0, size, max(1, size // 12)):
                folder = self.path("cut")
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(whole, folder)
                os.truncate(os.path.join(folder, file), cut)
                with self.subTest(file=file, cut=cut):
                    result = self.report(folder)
                    self.assertIn(result.code, (0, 1), result)
                    if result.code == 1:
                        self.assertIn(file, result.err)


if __name__ == "__main__":
    unittest.main()
