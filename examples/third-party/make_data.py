"""Writes the data of this example: support tickets (tickets.jsonl) and customers (customers.csv), all made up."""

import csv
import json
import random
from pathlib import Path

HERE = Path(__file__).resolve().parent
WHO = ["the customer", "my neighbour", "our office", "the school", "a reader", "the driver", "her team", "the shop"]
DOES = ["cannot open", "lost", "wants to return", "forgot", "ordered", "would like to change", "paid for", "asks about"]
WHAT = ["the blue bicycle", "a password", "the second invoice", "an old ticket", "the kitchen table", "a train pass"]
WHEN = ["since Monday", "before the holidays", "after the last update", "in the evening", "for three weeks", "again"]
CITIES = ["Antwerp", "Bergen", "Coimbra", "Delft", "Esbjerg", "Freiburg", "Ghent", "Haarlem"]
PLANS = ["basic", "family", "student", "business"]


def main() -> None:
    draw = random.Random(0)
    with (HERE / "tickets.jsonl").open("w", encoding="utf-8") as file:
        for number in range(400):
            text = " ".join(draw.choice(part) for part in (WHO, DOES, WHAT, WHEN))
            file.write(json.dumps({"id": number, "text": text, "queue": draw.choice(["billing", "sales"])}) + "\n")
    with (HERE / "customers.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "age", "city", "plan", "tickets", "spent"])
        for number in range(400):
            age = draw.randint(18, 90)
            plan = "student" if age < 27 else draw.choice(PLANS)
            spent = round(age * 10 + draw.gauss(0, 20), 2)
            writer.writerow([number, age, draw.choice(CITIES[: 4 + age % 5]), plan, draw.randint(0, 9), spent])


if __name__ == "__main__":
    main()
