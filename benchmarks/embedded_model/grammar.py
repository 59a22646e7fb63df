"""Grammars of the eight topics: word lists, and for each topic the alternatives of its first to third sentence."""

SLOTS: dict[str, tuple[str, ...]] = {
    "place": ("the coast", "the valley", "the north", "the south", "the hills", "the city", "the lake", "the islands"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"),
    "part": ("morning", "noon", "afternoon", "evening", "night"),
    "sky": ("rain", "snow", "fog", "sun", "wind", "cloud", "hail", "thunder"),
    "dish": ("soup", "stew", "salad", "curry", "pasta", "pie", "bread", "rice"),
    "food": ("onions", "beans", "tomatoes", "carrots", "potatoes", "mushrooms", "peppers", "lentils"),
    "spice": ("salt", "pepper", "garlic", "ginger", "basil", "cumin", "mint", "thyme"),
    "team": ("Lions", "Tigers", "Bears", "Hawks", "Wolves", "Sharks", "Eagles", "Bulls"),
    "player": ("Smith", "Garcia", "Rossi", "Novak", "Kim", "Silva", "Brown", "Haddad"),
    "town": ("Berlin", "Madrid", "Oslo", "Prague", "Rome", "Vienna", "Dublin", "Athens"),
    "vehicle": ("train", "bus", "ferry", "tram", "plane", "taxi"),
    "reason": ("repairs", "a storm", "a strike", "heavy traffic", "a signal fault", "ice on the line"),
    "plant": ("roses", "tulips", "ferns", "herbs", "beets", "lilies", "berries", "vines"),
    "soil": ("sand", "clay", "peat", "compost", "gravel", "bark"),
    "season": ("spring", "summer", "autumn", "winter"),
    "instrument": ("piano", "violin", "guitar", "flute", "cello", "trumpet", "drums", "harp"),
    "mood": ("slow", "bright", "dark", "gentle", "loud", "playful", "sad", "warm"),
    "firm": ("Acme", "Nordic Steel", "Blue Water", "Apex", "Delta Foods", "Orion", "Summit Bank", "Vega"),
    "goods": ("oil", "wheat", "copper", "cotton", "coffee", "timber", "gas", "sugar"),
    "book": ("novel", "diary", "poem", "memoir", "thriller", "play", "essay", "fable"),
    "person": ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Hugo"),
}

TOPICS: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "weather": (
        (
            "Weather for {day}: {sky} over {place} in the {part}.",
            "On {day} we expect {sky} in {place}.",
            "The {part} brings {sky} to {place}.",
        ),
        ("The high will be {n} degrees, with {sky} later.", "It stays near {n} degrees until {part}."),
        ("Take a coat if you travel to {place}.", "More {sky} follows on {day}."),
    ),
    "cooking": (
        (
            "For this {dish}, chop {n} {food} and add {spice}.",
            "To make a {dish}, fry the {food} with {spice}.",
            "This {dish} needs {food}, {spice} and a large pot.",
        ),
        ("Cook it for {n} minutes and stir often.", "Let it rest for {n} minutes, then add {spice}."),
        ("Serve the {dish} with {food}.", "It keeps until {day}."),
    ),
    "sport": (
        (
            "The {team} beat the {team} by {n} points on {day}.",
            "{player} scored {n} points for the {team}.",
            "The {team} lost to the {team} in {town}.",
        ),
        ("{player} was the best player of the game.", "A crowd from {town} cheered for {player}."),
        ("The next game is in {town} on {day}.", "Their coach praised {player}."),
    ),
    "travel": (
        (
            "The {vehicle} from {town} to {town} leaves at {n}.",
            "We took the {vehicle} to {town} on {day}.",
            "The {part} {vehicle} to {town} is late because of {reason}.",
        ),
        ("The trip takes {n} hours, with a stop in {town}.", "A ticket costs {n} dollars in the {season}."),
        ("Book a seat before {day}.", "There is no {vehicle} back at {part}."),
    ),
    "garden": (
        (
            "Plant the {plant} in {season} and cover them with {soil}.",
            "In {season} the {plant} need more {soil}.",
            "Our {plant} grew {n} inches this {season}.",
        ),
        ("Water them every {n} days in the {part}.", "Mix {soil} with {soil} before you dig."),
        ("Cut the {plant} back in {season}.", "Keep them away from {plant}."),
    ),
    "music": (
        (
            "The concert opened with a {mood} piece for {instrument}.",
            "{person} plays the {instrument} in {town} on {day}.",
            "A {mood} song for {instrument} and {instrument} came first.",
        ),
        ("The {instrument} part lasts {n} minutes.", "{person} wrote the {mood} ending."),
        ("The hall in {town} was full.", "We liked the {mood} tune of the {instrument}."),
    ),
    "market": (
        (
            "Shares of {firm} rose {n} percent on {day}.",
            "Shares of {firm} fell {n} percent after news on {goods}.",
            "{firm} will buy {goods} from {firm}.",
        ),
        ("The price of {goods} is {n} dollars.", "Traders in {town} sold {goods}."),
        ("Analysts expect more from {firm} by {season}.", "The deal closes on {day}."),
    ),
    "books": (
        (
            "{person} is reading a {mood} {book} about {town}.",
            "This {book} by {player} has {n} chapters.",
            "The {mood} {book} was first printed in {town}.",
        ),
        ("{person} finished it in {n} days.", "Its hero is {person}, who lives in {town}."),
        ("The library has a copy until {day}.", "The ending is {mood}."),
    ),
}
