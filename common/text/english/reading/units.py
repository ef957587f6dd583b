"""Units of measure behind a number: their names, plurals, powers and what they are per."""

from __future__ import annotations

import re

from melforge.common.text.english.reading import tables
from melforge.common.text.english.reading.cursor import Cursor
from melforge.common.text.english.reading.word_classes import CLOSED, FINITE
from melforge.common.text.english.word_parts import words

_UNIT = re.compile(r"(\s?|-)(?:(sq|cu)\.?[\s-])?([A-Za-zµμΩΩÅÅ]{1,5})(\^?[23²³])?(?![\w²³^])")
_DOTTED_UNIT = re.compile(r"\s?([mk]\.p\.h|r\.p\.m|m\.p\.g)(?:\.|(?!\w))")
_FLUID_OUNCE = re.compile(r"\s?fl\.?\s?oz(?!\w)")
_BARE_SCALE = re.compile(r"\s?([CF])(?![\w'-]|\.\w)")
_OF_HEAT = re.compile(
    r"\b(?:temp|degrees|heat|oven|bake|boil|freez|fever|weather|warm|cold|hot\b|cool|high|low|sunny|chill|hi\b|lo\b|gas\s(?:mark\s)?\d|fan\s\d|C\sfan\b|max\b|min\b|rain|snow|showers)|°",
    re.IGNORECASE,
)
_AT_HEAT = words("at below above reach reached reaches hit hits around")
_SEATED = re.compile(r"\b(?:[Ss]eat|[Gg]ate|[Rr]ow|[Rr]oom|[Ff]lat|[Aa]pt)")
_IN_CENTIMETERS = re.compile(r"\s\(\d{1,5}(?:\.\d{1,3})?\s?[cm]?m\)")
_BEFORE_LAST_INCH = ("", ",", ":", "x", "×", "by", "of", "is", "about", "to", "only")
_OF_PIECES = words("set sets kit kits bundle bundles pack packs puzzle jigsaw")
_OF_RATES = re.compile(
    r"\d%|\b(?:rates?|yields?|spreads?|cut|hike[sd]?|Fed|bank|bonds?|margins?|basis|mortgage|repo|LIBOR|SOFR|swaps?|coupon)\b"
)
_OF_LINKS = re.compile(
    r"\b(?:modem|baud|link|line|serial|data|bit|bandwidth|network|connection|throughput)\b"
)
_OF_PRESSURE = re.compile(
    r"\b(?:mph|kn?ts?|hurricane|storm|typhoon|cyclone|pressure|baro\w*|depression|wind)\b", re.IGNORECASE
)
_OF_WIND = re.compile(
    r"\b(?:\d+\s?kn?ts?|[Ww]inds?|vis(?:ibility)?|port|sail(?:ed|ing)?|offshore|island|range)\b"
)
_SCREEN = re.compile(
    r"\s(?:[48]K|HD|Full\sHD|Ultra\sHD|O?LED|QLED|AMOLED|LCD|TVs?|HDTV|IPS|[FUQ]HD|W?Q?UXGA|Retina)\b"
)
_PER_TWICE = re.compile(r"/([A-Za-z]{1,6})/([A-Za-z]{1,6})(?![\w/])")
_FACTOR_FOLLOWS = re.compile(r"\s?[a-z](?:[²³]|\^\d)")
_BEHIND_HEAD = re.compile(r"(?= (?:per|of|A|squared|cubed|to)\b)")
_BELOW = re.compile(r"(?:⁻|\^\{?-)([1-4¹²³⁴])\}?(?!\w)")
# What a unit is multiplied with or is per: "·m²", "-lb", "/s²", "/(mol", "·K)", " s⁻²", the K of "/m²K".
_TERM = re.compile(
    r"(\s?[·⋅∙]\s?|-(?=(?:m|ft|in|lbs?|lbf)\b)|\s?/\s?\(?|\s|(?<=[2-4²³⁴])(?=K))([A-Za-zµμΩ]{1,4})"
    r"(?:\^?([2-4²³⁴])|(⁻[¹²³⁴]|\^\{?-[1-4]\}?))?(?:(?<=[2-4²³⁴])(?=K(?![A-Za-z]))|(?![\w²³^⁻]))(\)?)"
)
_PER = re.compile(r"\s?/\s?([A-Za-zµμ]{1,12})(\^?[23²³])?(?![\w/])")
_PER_AREA = re.compile(r"\s?/\s?(?:(km|m|cm|mm|mi|ft|in)\^?[2²]|sq\.?\s(mi|ft|km|m|in|yd))(?!\w)")
_POINTS_OF_PERCENT = re.compile(r"\s?pp(?!\w)")
_PERCENT = re.compile(r"\s?(?:(mol|wt|vol)\.?\s?)?([%‰])")
_SHARES = {"mol": "mole ", "wt": "weight ", "vol": "volume "}
_LENGTHS = words("foot mile yard angstrom parsec")
_NO_AMPS = re.compile(r"\*s\b|\.(?:[CD]|\d(?:d|th)\b)")
_POWERED = words("AC DC USB LED PSU UPS MCB RCD PD A V")
_SECONDS = re.compile(r"\d+m?s")
_DEGREE_SIGN = re.compile(
    r"\s?(?:[°º](?:\s?([CFK])(?!\w)|\s?([NSEW])(?:\.(?=\s[a-z]|[,;]))?(?![\w']|\.\w)|(?!\s?[CFKNSEW]\w|\w))|([℃℉])(?!\w))"
)
_INCHES = re.compile(r"\"|″|''")
_FEET = re.compile(r"['′](?!(?!x\d)[\w'])")
_OPENED = re.compile(r"(?<![\w.,!?\"])'(?=\S)")
_KILO = re.compile(r" K(?![\w/·⋅])")
_HEAT = re.compile(
    r"(?i)\b(?:cool|heat|temp|kelvin|superc|therm|melt|boil|noise|colou?r|white|light|bulb|LED|gas|star|T\w?\s?[=≈<>~]|at|to|below|above|near|of)"
)
_ORDINAL = re.compile(r"\.?\s\d+(?:st|nd|rd|th)\b")
_DEGREE_WORD = re.compile(r"\s(?:deg\.?(?:\s([CFK]))?|degrees?\s([CFK]))(?![\w'])")
_IN_RECIPES = re.compile(
    r"\s(c|C|T|t|pt|pkg|pkgs)\.(?=,?\s[a-z]|(?:\s[A-Z]\w+){1,2}\s(?:flour|yogurt|cheese|sugar|butter|milk|oil|rice)\b)"
)
_FOODS = words("""flour sugar butter milk water oil salt vanilla honey cream rice yeast cinnamon pepper
    cornstarch oats vinegar cheese stock broth lemon soy brown baking chopped grated ground minced packed
    sifted melted olive strawberries blueberries raspberries cherry grape tomatoes
    chicken beef sliced diced fresh heavy whipping""")
_OF_TYPE = re.compile(
    r"\s?pts?\.?(?=\s(?:font|type|text|bold|italics?|Arial|Times|Helvetica|Calibri|Courier|Garamond)\b)"
)
_POINTS = re.compile(
    r"-?((?<=-)pt|(?<=-)pg|dr)s?(?![\w-]|\.\S)(?:\.(?=\s[a-z]))?"
)  # a 12-pt font, a 4-dr sedan
_OF_POINTS = {"pt": "-point", "pg": "-page", "dr": "-door"}
_WITHOUT_STOP = re.compile(r"\s?(c|C|T|t|pts?)\.?\s(?=([a-z]{2,12})\b)")  # "3 T butter"
_RECIPE_UNITS = {"c": "cup", "C": "cup", "T": "tablespoon", "t": "teaspoon", "pt": "pint", "pts": "pint"}
_RECIPE_UNITS |= {"pkg": "package", "pkgs": "package"}
_POLES = {"N": " north", "S": " south", "E": " east", "W": " west"}
_POLE = re.compile(r"\s?([NSEW])(?!\w)")
_PLACED = words("lat latitude long lon lng longitude")
_TURNS = words("angle angles turn turns rotation view heat bend panorama arc swing")
_SIZES = words(
    "apart above below since until till while when"
    " vs v o possible tall wide long deep high thick taller wider longer shorter overnight ea each x × by of"
)
_SCALES = {"C": " Celsius", "F": " Fahrenheit", "K": " Kelvin", "": ""}
# What a number with its unit describes: "a 35mm film" is of thirty-five millimeters.
THINGS = words("""film lens camera monitor screen display tv television battery cable cord gun pistol plug
    socket outlet hose pipe bolt drill disk drive motor engine bulb adapter charger supply circuit wheel
    wheels tire tires bottle bag can jar tank pack radius run race sprint walk hike ride bike dash swim drive
    trip pizza blade knife laptop tablet thermometer caliber cannon mortar freestyle hurdles backstroke
    apt apartment condo warranty lease loan contract guarantee mortgage
    breaststroke butterfly medley relay final individual read break nap delay warning wait stay interval
    intervals timeout countdown vial syringe ampule dose pill tablet capsule mug jug carton crate keg
    sachet container bucket sack rope chain ladder bottles
    lot tin tins cans jars bags packs boxes tubes pouches cartons
    breaker reload cooldown service clock format support hotline fuse panel aliquots samples
    burger patty batt V6 V8 V10 V12 USB LED SSD HDD HDMI GaN charging charge pump heater fridge backpack
    resistor capacitor bin""")
_BY_FOLLOWS = re.compile(r"\s?[x×]\s?\d+(?:\.\d+)?\s?[wdh]\b")
_SCORE = re.compile(r"(\d{1,3})[-–](\d{1,3})")
_POSTCODE = re.compile(r"[A-Z]{1,2}\d(?:\d|([A-Z]))?")
COOKED = re.compile(
    r"\b(?:[Bb]ake|[Bb]roil|[Ss]immer|[Bb]oil|[Cc]ook|[Rr]oast|[Rr]est (?:the )?dough|[Cc]hill|[Pp]roof"
    r"|[Ff]ry|[Mm]icrowave)\b"
)
_BEDROOMS = re.compile(r"\d\s?(?:BR|BD|bd|bed)")
_PLAYED = re.compile(
    r"\b(?:boss|damage|heals?|potions?|enem(?:y|ies)|DPS|XP|spells?|monsters?)\b|\bHP\sleft\b"
)
_BODY = words("arm leg knee hip shoulder ankle wrist hand foot eye ear lung side breast elbow")
_LONG_THING = re.compile(
    r"\s(?:long|wide|deep|tall|high)\s(?:run|ride|walk|hike|swim|drive|rope|cable|cord|pole|wall|hole)\b"
)
_ENGINE_FOLLOWS = re.compile(r"\s(?:[VIW]-?\d{1,2}|inline|turbo|Turbo|EcoBoost|Hemi|HEMI|diesel)\b")
_PLURAL_TIMES = words("yrs hrs mins secs wks mos")  # "under 3 yrs. ride free"
_NAMED_WHOLE = re.compile(r"\s?(?:(in\.?\s?Hg)|(mb/d)|([Kk]/[µμu]L)|(M/[µμu]L)|(MT/s)|(GT/s))(?!\w)")
_NAMES_WHOLE = (
    *("inches of mercury", "million barrels per day", "thousand per microliter", "million per microliter"),
    *("megatransfers per second", "gigatransfers per second"),
)
_MOLAR = re.compile(
    r"\s?M(?=\s(?:NaOH|HCl|NaCl|KCl|KOH|H[2₂]SO[4₄]|HNO[3₃]|Tris|EDTA|MgCl|CaCl|urea|sucrose|glucose)\b)"
)
_OF_SHARES = re.compile(r"\b(?:shares|buyback|revenue|EBITDA|capex)\b")
_BESIDE_RECORD = re.compile(r"\d-\d{1,3},\s$")  # "58-44, 2½ GB"
_SOUTH_BEFORE = re.compile(r"\d\.\d{1,4}\s?[NS],?\s$")
_WEST_BEHIND = re.compile(r"[NS],?\s\d{1,3}\.\d{1,4}\s?[EW](?!\w)")
_AMP_THINGS = words("""input output at per each max min fuse current circuit breaker plug charger supply load
    outlet receptacle""")
# Before a number and a letter that belong together: "Apt 4B", "Bus 42A".
LETTERED = words("""# § §§ apt apartment unit suite ste room rm flat gate seat row section figure fig exhibit
    class grade line platform bus route rte rt highway hwy road exit pier dock lot bay bed building bldg
    floor deck cell door house table page appendix form part question step type zone track hall stand stall
    studio tower wing block ward terminal rwy runway ils flight train tram no number bus berth aisle locker
    pixel session lecture group team chapter ch article art exhibit sec sect title courtroom
    hangar slip amendment clause schedule""")
_NO_HOURS = words("HR HRs")  # home runs, mostly, or a department
ROADS = words("I US SR CR FM Hwy Highway Route Rte Rt Interstate Road Exit Twp Township Rge Range")
ROADS |= tables.STATES.keys()  # "NY-17 W"
_LABEL = re.compile(r":\s|/(?:(?![KVANL])[A-Z]|9)(?!\w)")  # "H: 78 L: 61", "32-4 K/D", "9.4 K/9"
_BEFORE_FEET = ("ft", "ft.", "foot", "feet", "'")
_YEAR = re.compile(r"1[1-9]\d\d(?!\d)\s|20\d\d\s")
TIMED = words("""delayed mttr mtbf uptime downtime runtime took lasted prep preparation cook cooking time
    total duration rest wait elapsed eta bake chill delay""")
_WAITED = re.compile(
    r"\b(?:[Ll]ocked|[Ss]nooze|[Mm]uted|[Pp]aused|[Aa]gain\sin|[Rr]etry|[Ee]xpires|[Ss]igned\sout)"
)
_LOOK_BACK = 200  # characters in which an open quotation mark is looked for
_PERIODS = words("""second minute hour day week month year night person item unit share dozen capita customer
    group household player team student employee user head cell animal""")


def unit_name(symbol: str) -> str | None:
    """The singular name of a unit's symbol, None where it is none: "km", "KM"."""
    if symbol[-1:] == "s" and len(symbol) > 2 and symbol[-2].isupper():  # "GBs"
        symbol = symbol[:-1]
    if symbol[0] == "u" and symbol != "um":  # "10 uF"
        return tables.UNITS.get(f"µ{symbol[1:]}")
    return tables.UNITS.get(symbol) or tables.UNITS.get(tables.LIKE_UNITS.get(symbol, ""))


def unit_after(cursor: Cursor, end: int, is_one: bool) -> tuple[str, int]:
    """The unit behind a number that ends at `end`: " miles" or "", and where it ends."""
    text = cursor.text
    is_bare = text.startswith(" K", end) and not {".", ","} & {*text[cursor.at : end]}
    if is_bare and _KILO.match(text, end) and not cursor.is_near(_HEAT):
        return "", end  # "9 K followers"
    if match := _PERCENT.match(text, end):
        return f" {_SHARES.get(match[1], '')}{tables.SYMBOLS[match[2]]}", match.end()
    if match := _DEGREE_SIGN.match(text, end):
        scale = match[1] or {"℃": "C", "℉": "F"}.get(match[3] or "", "")
        is_one = is_one or (not scale and cursor.next(match.end()) in _TURNS)  # "a 90° angle"
        pole = _POLES.get(match[2] or "", "")
        below = _PER.match(text, match.end())
        is_rate = below is not None and unit_name(below[1]) is not None  # "10 °C/min", not "°C/Gas 7"
        per, end = per_unit(cursor, match.end()) if is_rate else ("", match.end())
        return (" degree" if is_one else " degrees") + _SCALES[scale] + pole + per, end
    if match := _DEGREE_WORD.match(text, end):
        return (" degree" if is_one else " degrees") + _SCALES[match[1] or match[2] or ""], match.end()
    if match := _INCHES.match(text, end):
        if not _is_size(cursor, '"'):
            return "", end
        following = cursor.next(match.end())
        is_thing = following[:1].islower() and following not in _SIZES | CLOSED
        is_thing = is_thing and following not in FINITE and not following.endswith("ed")
        is_range = cursor.previous not in ("a", "an", "the") and "-" in text[cursor.at : end]
        is_one = is_one or (is_thing and not is_range)
        is_one = is_one or _SCREEN.match(text, match.end()) is not None
        return (" inch" if is_one and following != "and" else " inches"), match.end()
    if (
        (match := _FEET.match(text, end))
        and (end - cursor.at < 4 or text[end - 4] == "," or "." in text[cursor.at : end])
        and _is_size(cursor, "'")
    ):
        return (" foot" if is_one else " feet"), match.end()
    if match := _FLUID_OUNCE.match(text, end):
        is_one = is_one or cursor.next(match.end()) in THINGS
        return f" fluid {'ounce' if is_one else 'ounces'}", _past_stop(cursor, match.end())
    if match := _DOTTED_UNIT.match(text, end):
        name = tables.UNITS[match[1].replace(".", "")]
        stop = cursor.last_stop(match.end()) if match[0].endswith(".") else ""
        return f" {name if is_one else plural_unit(name)}{stop}", match.end()
    if match := _OF_TYPE.match(text, end):
        return " point", match.end()
    if match := _IN_RECIPES.match(text, end):
        name = _RECIPE_UNITS[match[1]]
        return f" {name if is_one else plural_unit(name)}", match.end()
    if "." in text[cursor.at : end] and (match := _POINTS_OF_PERCENT.match(text, end)):  # "0.4 pp"
        return " percentage points", match.end()
    if match := _POINTS.match(text, end):
        return _OF_POINTS[match[1]], match.end()
    if (match := _WITHOUT_STOP.match(text, end)) and match[2] in _FOODS:
        name = _RECIPE_UNITS[match[1]]
        return f" {name if is_one else plural_unit(name)}", match.end() - 1
    if (match := _BARE_SCALE.match(text, end)) and _is_temperature(cursor, match):
        return (" degree" if is_one else " degrees") + _SCALES[match[1]], _past_stop(cursor, match.end())
    if (pole := _POLE.match(text, end)) and _is_placed(cursor, pole):
        return _POLES[pole[1]], pole.end()
    if (special := _NAMED_WHOLE.match(text, end)) and special.lastindex:
        return f" {_NAMES_WHOLE[special.lastindex - 1]}", special.end()
    if molar := _MOLAR.match(text, end):
        return " molar", molar.end()
    match = _UNIT.match(text, end)
    name = unit_name(match[3]) if match else None
    if not match or not name:
        return "", end
    gap, square, _, power = match.groups()
    if match[3] in ("pc", "bp", "bps", "nm", "mb", "m", "mm", "GB") and (
        special := _said_by_neighbours(cursor, match, is_one)
    ):
        return special, match.end()
    if power in ("2", "3") and not _raised(name, power).endswith(name):  # "DIN 933 A2"
        return "", end
    if match[3] in _NO_HOURS or not _is_unit(cursor, match):
        return "", end
    end = _past_stop(cursor, match.end())
    is_one = (
        is_one
        or gap == "-"
        or (match[3] not in _PLURAL_TIMES and _is_of_thing(cursor, end, is_glued=not gap))
        or _LONG_THING.match(text, end) is not None
        or (name == "liter" and _ENGINE_FOLLOWS.match(text, end) is not None)
    )
    if below := _BELOW.match(cursor.text, end):  # "5 s⁻¹"
        return f" per {_raised(name, below[1])}", below.end()
    product, per, end = _terms(cursor, end)
    if square or power:
        name = _raised(name, "2" if square == "sq" else "3" if square else power[-1])
    name += product
    if not is_one:
        name = plural_unit(name)
    rest, end = per_unit(cursor, end)
    return ("-" if gap == "-" else " ") + name + per + rest, end


def _is_of_thing(cursor: Cursor, end: int, is_glued: bool) -> bool:
    """Whether a unit that ends at `end` describes a thing: "50 m rope", "65W fast charging"."""
    following = cursor.next(end)
    if is_glued and following.islower() and following not in CLOSED | FINITE:
        words_behind = (following, following.removesuffix("s"), cursor.next(end + 1 + len(following)))
        return not THINGS.isdisjoint(words_behind)
    return following in THINGS


def _terms(cursor: Cursor, end: int) -> tuple[str, str, int]:
    """The units behind the one that ends at `end`: "·m²/s²" is "square meter", " per second squared"."""
    product, per, is_open = "", "", False
    while match := _TERM.match(cursor.text, end):
        joint, symbol, power, below, closing = match.groups()
        name = unit_name(symbol)
        if not name or (joint.isspace() and not below):
            break
        name = _raised(name, power or (below or "").strip("⁻^{-}"))
        if "/" in joint or below:
            per += f" per {name}"
        elif per:
            per += f" {name}"
        else:
            product += f" {name}"
        is_open = is_open or "(" in joint
        end = match.end() - (closing != "" and not is_open)  # "(63 ft-lb)"
        is_open = is_open and not closing
    return product, per, end


def _raised(name: str, power: str) -> str:
    """ "meter", "2" -> "square meter"; "second", "2" -> "second squared"."""
    count = tables.SUPERSCRIPTS.get(power, power)
    if count in ("2", "3") and (name.endswith(("meter", "inch")) or name in _LENGTHS):
        return f"{'square' if count == '2' else 'cubic'} {name}"
    return name + {"2": " squared", "3": " cubed", "4": " to the fourth"}.get(count, "")


def _said_by_neighbours(cursor: Cursor, match: re.Match, is_one: bool) -> str:
    """ "Prep: 15 m" is minutes, "43pc" percent, "25bps" basis points beside rates; "" for other units."""
    if match[3] == "m":
        is_timed = (cursor.previous == ":" and cursor.earlier.lower() in TIMED) or cursor.is_near(COOKED)
        is_timed = is_timed or (cursor.previous in ("for", "in") and cursor.is_near(_WAITED))
        is_timed = is_timed or (cursor.previous == "to" and _SECONDS.fullmatch(cursor.earlier) is not None)
        return (" minute" if is_one else " minutes") if is_timed else ""
    if match[3] == "GB":
        return " games back" if _BESIDE_RECORD.search(cursor.text, max(cursor.at - 9, 0), cursor.at) else ""
    if match[3] == "pc":
        return "" if match[1] or cursor.next(match.end()) in _OF_PIECES else " percent"
    around = cursor.text[max(cursor.at - 80, 0) : match.end() + 80]
    if match[3] == "nm":
        return " nautical miles" if _OF_WIND.search(around) else ""
    if match[3] == "mb":
        return " millibars" if _OF_PRESSURE.search(around) else ""
    if match[3] == "mm":
        return " million" if _OF_SHARES.search(around) else ""
    if match[3] == "bps":
        is_fast = match.start() - cursor.at > 3 or _OF_LINKS.search(around)
        return "" if is_fast else " basis points"
    points = "-basis point" if match[1] == "-" else " basis points"
    return points if "%" in around or _OF_RATES.search(around) else ""


def _is_placed(cursor: Cursor, pole: re.Match) -> bool:
    """Whether "N" behind a number is of a place on earth: "lat. 40 N", "21.4N 67.9W"."""
    if cursor.previous.lower().rstrip(".") in _PLACED:
        return True
    is_first = _WEST_BEHIND.match(cursor.text, pole.start(1)) is not None
    return is_first or (
        pole[1] in "EW" and _SOUTH_BEFORE.search(cursor.text, max(cursor.at - 12, 0), cursor.at) is not None
    )


def _is_unit(cursor: Cursor, match: re.Match) -> bool:
    """Whether what looks like a unit is one here, and no word or letter."""
    gap, square, symbol, _ = match.groups()
    following = cursor.next(match.end())
    if len(symbol) == 1 and cursor.previous.lower().rstrip(".") in ("size", "sz"):  # shoes
        return False
    if gap and len(symbol) < 3 and symbol.isupper() and _LABEL.match(cursor.text, match.end()):
        return False
    is_side = cursor.previous in ("x", "×") and not cursor.earlier[1:].isalpha()  # "48w x 30d"
    if symbol in "wdh" and (is_side or _BY_FOLLOWS.match(cursor.text, match.end())):
        return False
    before = cursor.earlier if cursor.previous in ("is", "are", "was", ":") else cursor.previous
    is_lettered = before.rstrip(".").lower() in LETTERED and following not in ("x", "×")
    if not gap and len(symbol) == 1 and is_lettered:
        return False  # "Bus 42A", not "The bed is 2m x 1m"
    if not gap and len(symbol) == 1 and cursor.previous[-1:] == "-" and cursor.previous[0].isupper():
        return False  # "F-35A"
    code = _POSTCODE.fullmatch(cursor.previous) if len(symbol) == 2 and symbol.isupper() else None
    if code and (code[1] or symbol in ("BD", "BA")):
        return False  # "N1C 4TB", "TW8 9BD"
    if symbol == "HP" and (cursor.text[max(cursor.at - 1, 0)] in "+-−" or cursor.is_near(_PLAYED)):
        return False  # of a game
    if symbol == "L" and following in _BODY:
        return False  # "BP 142/88 L arm"
    if symbol == "pg" and not cursor.text.startswith("/", match.end()):  # pages
        return False
    if symbol == "A" and not gap and cursor.previous.isupper() and cursor.previous not in _POWERED:
        return False  # "CS 61A"
    is_course = len(cursor.previous) > 2 and cursor.previous.isupper() and not cursor.is_shouted
    if symbol == "L" and not gap and is_course:
        return False  # "CHEM 231L"
    if symbol == "A" and not cursor.at and cursor.text.startswith(".", match.end()):
        return False  # "22A." of a crossword
    if symbol == "ac" and not gap:
        return False  # "4ac"
    if cursor.char == "0" and not gap and symbol in "LRCNSEW" and cursor.text[cursor.at + 1] != ".":
        return False  # "runway 09L"
    score = _SCORE.fullmatch(cursor.text, cursor.at, match.start()) if symbol == "W" else None
    if score and int(score[1]) > int(score[2]):
        return False  # "in a 27–24 W"
    if len(symbol) == 1 and _FACTOR_FOLLOWS.match(cursor.text, match.end()):
        return False  # "½ m v²"
    is_inch = symbol == "in" and (
        cursor.text.startswith(".", match.end())
        or following in _SIZES | {"="}
        or (following == "(" and "." in cursor.text[cursor.at : match.start()])
        or (cursor.previous.endswith(_BEFORE_FEET) and not following.isalnum())
        or following == ")"
        or (cursor.previous in ("×", "x", "by") and cursor.earlier.endswith("in"))  # "3 in × 5 in card"
        or (following == "(" and _IN_CENTIMETERS.match(cursor.text, match.end()) is not None)
        or (following in ("", ";") and gap == " " and cursor.previous.lower() in _BEFORE_LAST_INCH)
    )
    is_month = symbol == "mo" and (gap == "-" or cursor.text.startswith(".", match.end()))
    is_apart = gap and not is_month  # "a 12-mo contract", "24 mo."
    is_home = symbol in ("BA", "BD") and cursor.is_near(_BEDROOMS)
    if symbol in tables.TOUCHING_UNITS and is_apart and not (square or is_inch or is_home):
        return False
    if len(symbol) > 1 or not symbol.isupper():
        return True
    if (gap == "-" and symbol not in "ÅÅΩ") or (symbol == "K" and not gap):
        return False
    is_year = not gap[1:] and _YEAR.match(cursor.text, cursor.at) is not None
    if is_year and cursor.text.startswith(". ", match.end()) and (following := cursor.next(match.end() + 1)):
        return not (following[:1].isupper() or following == "of")  # "1907 J. Harlan", "1912 W. of"
    if symbol in "AB" and _NO_AMPS.match(cursor.text, match.end()):  # "200 A.D.", "88 A.2d 12"
        return False
    if symbol == "A":
        return not following[:1].isalnum() or following in _AMP_THINGS
    if symbol in "NW" and (cursor.previous.rstrip("-.") in ROADS or cursor.text.startswith("'", match.end())):
        return False
    # "314 W. 42nd", "12 N Main"; not "a 65W USB charger"
    is_named = following[:1].isupper() and (gap != "" or symbol == "N")
    is_direction = symbol in "NW" and (is_named or _ORDINAL.match(cursor.text, match.end()))
    return not is_direction and not (
        symbol in "NW" and cursor.text[match.end() : match.end() + 2] in (".E", ".W")
    )


def _is_temperature(cursor: Cursor, match: re.Match) -> bool:
    """Whether "98.6 F" or "72F" is one: with a decimal, or beside a word of heat."""
    is_signed = cursor.text[max(cursor.at - 2, 0) : cursor.at].strip("(") in ("-", " -", "−", " −")
    if cursor.previous.rstrip(".").lower() in LETTERED or (cursor.previous[-1:] == "-" and not is_signed):
        return False
    number, following = cursor.text[cursor.at : match.start()], cursor.next(match.end())
    if not re.fullmatch(r"\d{1,4}(?:\.\d)?(?:\s?[-–]\s?\d{1,4})?", number) or following[:1].isupper():
        return False
    is_glued = number.isdecimal() and match.start(1) == match.start() and not cursor.is_near(_SEATED)
    if "." in number or is_signed or (is_glued and cursor.previous.lower() in _AT_HEAT):
        return True
    around = cursor.text[max(cursor.at - 60, 0) : match.end() + 40]
    return _OF_HEAT.search(around) is not None


def per_unit(cursor: Cursor, end: int) -> tuple[str, int]:
    """ "/s²" -> " per second squared"; "" where no unit follows."""
    if twice := _PER_TWICE.match(cursor.text, end):  # "$10/user/month"
        names = [unit_name(part) or tables.PER_ONLY.get(part) or part for part in twice.groups()]
        if names[1] in _PERIODS and len(names[0]) > 2:
            return f" per {names[0]} per {names[1]}", twice.end()
    if cursor.text.startswith("/ea", end) and not cursor.text[end + 3 : end + 4].isalnum():
        return " each", _past_stop(cursor, end + 3)
    if area := _PER_AREA.match(cursor.text, end):  # "$4.25/sq. ft."
        return f" per square {tables.UNITS[area[1] or area[2]]}", _past_stop(cursor, area.end())
    match = _PER.match(cursor.text, end)
    name = unit_name(match[1]) or tables.PER_ONLY.get(match[1]) if match else None
    if not match or (not name and (len(match[1]) < 3 or " " in match[0])):
        return "", end
    below, power = name or match[1], match[2] or ""
    past_stop = _past_stop(cursor, match.end())  # "$1,900/mo. + utilities"
    return f" per {_raised(below, power[-1:])}", past_stop


def unit_behind_per(cursor: Cursor) -> tuple[str, int]:
    """ "per kg", "per km²", "per sq ft": the unit at the cursor, and where it ends."""
    match = _UNIT.match(cursor.text, cursor.at)
    name = unit_name(match[3]) if match and len(match[3]) > 1 else None
    if not match or not name:
        return "", cursor.at
    square, power = match[2], match[4] or ""
    kind = "square " if square == "sq" or power.endswith(("2", "²")) else "cubic " if square or power else ""
    return kind + name, match.end()


def bare_per_unit(cursor: Cursor, end: int) -> tuple[str, int]:
    """ "12/kg", "3/day": what a plain number is per."""
    if area := _PER_AREA.match(cursor.text, end):
        return f" per square {tables.UNITS[area[1] or area[2]]}", area.end()
    match = _PER.match(cursor.text, end)
    if not match or cursor.text[end] != "/" or match[2]:
        return "", end
    name = match[1] if match[1] in _PERIODS else unit_name(match[1]) or tables.PER_ONLY.get(match[1])
    is_sure = name and (len(match[1]) > 1 or match[1] in "hsd")
    return (f" per {name}", match.end()) if is_sure else ("", end)


def plural_unit(name: str) -> str:
    """ "mile per hour" -> "miles per hour", "square foot" -> "square feet"."""
    head, *tail = _BEHIND_HEAD.split(name, maxsplit=1)
    before, blank, last = head.rpartition(" ")
    return f"{before}{blank}{tables.PLURALS.get(last, last + 's')}{''.join(tail)}"


def singular_unit(name: str) -> str:
    """ "miles per hour" -> "mile per hour"."""
    for unit in (*tables.UNITS.values(), "degree"):
        plural = plural_unit(unit)
        if name.startswith(plural):
            return unit + name[len(plural) :]
    return name


def _past_stop(cursor: Cursor, end: int) -> int:
    """Past the full stop of "5 lbs. 3 oz.", unless it ends the sentence."""
    if not cursor.text.startswith(".", end):
        return end
    return end if cursor.last_stop(end + 1) else end + 1


def _is_size(cursor: Cursor, mark: str) -> bool:
    """Whether a quotation mark behind a number means inches or feet: none is open."""
    start = max(cursor.at - _LOOK_BACK, 0)
    if mark == "'":
        return not _OPENED.search(cursor.text, start, cursor.at + 1)
    is_open = False
    at = cursor.text.find(mark, start, cursor.at)
    while at >= 0:  # behind a digit it means inches, or ends what is quoted
        is_open = not is_open and not cursor.text[max(at - 1, 0)].isnumeric()
        at = cursor.text.find(mark, at + 1, cursor.at)
    return not is_open
