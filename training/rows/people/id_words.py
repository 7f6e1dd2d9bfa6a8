"""Words by which columns are called that name people, in several languages: small letters, without accents."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

# Who has an id: English, French, German, Spanish, Italian, Portuguese, Dutch, Nordic, Slavic, Turkish.
_PEOPLE = """
person patient customer client user member subject employee worker student pupil citizen resident inhabitant household
owner donor applicant borrower debtor respondent participant visitor driver passenger taxpayer voter insured
policyholder subscriber individual account beneficiary claimant cardholder
personne salarie employe adherent eleve etudiant citoyen habitant foyer menage abonne beneficiaire titulaire assure
emprunteur allocataire locataire
kunde kunden kundin patienten patientin versicherter versicherte versicherten mitglied mitglieder mitglieds mitarbeiter
angestellter angestellten schuler studierende studierenden studenten einwohner haushalt haushalts teilnehmer proband
probanden nutzer benutzer kreditnehmer steuerzahler personal
paciente cliente empleado alumno estudiante persona usuario afiliado asegurado ciudadano hogar trabajador titular
paziente dipendente studente utente assicurato cittadino assistito lavoratore
funcionario aluno pessoa segurado cidadao utilizador trabalhador
klant medewerker werknemer persoon leerling verzekerde huishouden inwoner
kund medlem medlems anstalld ansatt elev bruker anvandare bruger asiakas potilas henkilo
pacjent pacjenta pacient pacienta klient klienta pracownik pracownika zamestnanec osoba uczen uzytkownik zakaznik
musteri ogrenci calisan
пациент клиент сотрудник пользователь студент
"""
# What stands for a person where an id's word stands beside it, and may be something else alone.
_SHORT = """
cust acct emp stud usr memb subj cli kd kdn pat pers vers mitgl vs sv ahv steuer fall nhs secu securite
sozialversicherungs
"""
_IDS = """
id ids identifier uid uuid guid no nr num number key code cod ref hash pseudonym name
n numero identifiant matricule nom reference dossier
nummer kennung kennzahl kennzeichen schluessel schlussel
identificador codigo clave nombre identificativo codice tessera nome numer cislo naam navn namn номер код
"""
_BOTH = """
pid ssn mrn nin email mail username userid login surname phone msisdn iban passport imei patientid personid customerid
clientid memberid subjectid employeeid studentid accountid firstname lastname fullname forename
uid telephone telefon telefono telefone matricule nif cf vsnr svnr patid persnr custno acctno kdnr
nir prenom nachname vorname apellido apellidos dni nie cedula curp rut cognome codicefiscale cpf prontuario bsn
burgerservicenummer achternaam pesel nazwisko personnummer personnr fodselsnummer cpr hetu tckn снилс фамилия
患者 患者id 患者番号 患者编号 客户 客户号 客户编号 顧客 顧客番号 姓名 氏名
身份证 身份证号 学号 会员号 会員番号 환자번호 고객번호
"""
PEOPLE, SHORT, IDS, BOTH = (frozenset(words.split()) for words in (_PEOPLE, _SHORT, _IDS, _BOTH))
_NAMES = """
name nom nome nombre naam navn namn surname firstname lastname fullname forename prenom nachname vorname apellido
apellidos cognome achternaam nazwisko 姓名 氏名 фамилия
"""
_CONTACTS = "email mail phone msisdn telephone telefon telefono telefone iban"
NAMES, CONTACTS = frozenset(_NAMES.split()), frozenset(_CONTACTS.split())
ID, CONTACT, NAME = "id", "contact", "name"
_WORD_PATTERN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")


def words_of(name: str) -> list[str]:
    """Split a column's name into words of small letters without accents: `patientID`, `patient_id` and `Patient Id` are
    patient, id; `N° client` is n, client; `Número de cliente` is numero, de, cliente.
    """
    parts = unicodedata.normalize("NFKD", name.replace("ß", "ss"))
    plain = "".join(letter for letter in parts if not unicodedata.combining(letter))
    return [word.lower() for word in _WORD_PATTERN.findall(unicodedata.normalize("NFC", plain))]


def names_people(name: str) -> bool:
    """Return whether a column's name says that it tells people apart: a person's word, alone or with an id's word after
    it (`patient_id`), before it (`N° client`, `numero de cliente`) or grown together with it (`Kundennummer`).
    """
    words = words_of(name)
    if not words:
        return False
    while words[-1] in IDS and len(words) > 1:
        words = words[:-1]
        if words[-1] in PEOPLE | SHORT | BOTH or _is_compound(words[-1]):
            return True
    if "".join(words) in BOTH | PEOPLE or words[-1] in BOTH or _is_compound(words[-1]):
        return True
    linked = words[0] in IDS and set(words[1:-1]) <= IDS | {"de", "du", "del", "do", "da", "d"}
    return linked and words[-1] in PEOPLE | SHORT


def kind_of_name(name: str) -> str:
    """Return what a column that `names_people` calls people by: an ID, a CONTACT or their own NAME, which two of them
    may have in common and one may spell in two ways.
    """
    words = words_of(name)
    if not {"user", "username", "login"}.isdisjoint(words):
        return ID
    if not NAMES.isdisjoint(words) or words[-1].endswith(("name", "naam", "navn", "namn")):
        return NAME
    return ID if CONTACTS.isdisjoint(words) else CONTACT


def is_id(name: str) -> bool:
    """Return whether a name ends in a word that numbers something, people or not."""
    return (words_of(name) or [""])[-1] in ("id", "ids", "uuid", "guid", "uid")


@lru_cache(maxsize=4096)
def _is_compound(word: str) -> bool:
    """Return whether it is a person's word and an id's in one, as Germanic languages write them."""
    begins = [word.removesuffix(end) for end in IDS if len(end) > 1 and word.endswith(end) and end != word]
    return any(not {begin, begin.removesuffix("s")}.isdisjoint(PEOPLE | SHORT) for begin in begins)
